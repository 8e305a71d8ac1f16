// The sign-in form. The server exchanges the token for a cookie that scripts cannot read.
import { type FormEvent, type ReactNode, useState } from "react";
import { RequestError, resolveUrl } from "./api/request.ts";
import { Button } from "./parts/button.tsx";
import { Field } from "./parts/form.tsx";
import { ErrorCallout } from "./parts/panel.tsx";

export function SignInForm({
  application,
  title = "Sign in",
  help,
  placeholder,
  signIn,
}: {
  application: string;
  title?: string;
  help: ReactNode;
  placeholder?: string;
  /** Throws a RequestError if the token is not accepted. */
  signIn: (token: string) => Promise<void>;
}) {
  const [token, setToken] = useState("");
  const [error, setError] = useState<RequestError>();
  const [busy, setBusy] = useState(false);
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await signIn(token.trim());
    } catch (failure) {
      if (!(failure instanceof RequestError)) throw failure;
      setError(failure);
    } finally {
      setBusy(false);
    }
  }
  const isRejected = error !== undefined && !error.isTemporary;
  return (
    <main className="sign-in">
      <form className="panel" onSubmit={(event) => void submit(event)} noValidate>
        <Brand>{application}</Brand>
        <h1>{title}</h1>
        <Field
          name="token"
          label="Token"
          help={help}
          error={isRejected ? [error.message, error.remedy].filter(Boolean).join(". ") : undefined}
        >
          {(props) => (
            <input
              {...props}
              type="password"
              autoComplete="current-password"
              placeholder={placeholder}
              value={token}
              onChange={(event) => setToken(event.target.value)}
              // biome-ignore lint/a11y/noAutofocus: it is the only input of the page.
              autoFocus
            />
          )}
        </Field>
        {error && !isRejected && <ErrorCallout error={error} />}
        <Button type="submit" kind="main" disabled={busy || token.trim() === ""}>
          Sign in
        </Button>
      </form>
    </main>
  );
}

export function Brand({ children }: { children: ReactNode }) {
  return (
    <span className="brand">
      <img src={resolveUrl("mark.svg")} alt="" />
      {children}
    </span>
  );
}
