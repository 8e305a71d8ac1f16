// The door for people: a token becomes a cookie that scripts cannot read.
import { type FormEvent, useId, useState } from "react";
import { useLocation } from "wouter";
import { addressOf, call, Refused } from "../api/call.ts";
import { Button } from "../parts/button.tsx";
import { inert } from "../parts/words.ts";

export function SignInPage({ onIn, signedIn }: { onIn: () => void; signedIn: boolean }) {
  const id = useId();
  const [token, setToken] = useState("");
  const [wrong, setWrong] = useState<Refused>();
  const [busy, setBusy] = useState(false);
  const [place, go] = useLocation();

  async function signIn(event: FormEvent): Promise<void> {
    event.preventDefault();
    setBusy(true);
    try {
      const { role } = await call<{ role: string }>("POST", "/v1/session", { body: { token: token.trim() } });
      if (role === "worker") {
        await call("DELETE", "/v1/session");
        const remedy = "Ask an admin for one of a reader, an operator or an admin.";
        throw new Refused({
          code: "FORBIDDEN",
          status: 403,
          detail: "This token is for workers, not for people",
          remedy,
        });
      }
      setWrong(undefined);
      onIn();
      if (place === "/sign-in") go("/");
    } catch (error) {
      setWrong(error as Refused);
    } finally {
      setBusy(false);
    }
  }

  return (
    <main className="sign-in">
      <form className="panel" onSubmit={signIn} noValidate>
        <span className="brand">
          <img src={addressOf("mark.svg")} alt="" />
          Stillwake
        </span>
        <h1>{signedIn ? "Sign in as somebody else" : "Sign in"}</h1>
        <div className="field">
          <label htmlFor={id}>Token</label>
          <input
            id={id}
            className="input"
            type="password"
            autoComplete="current-password"
            placeholder="swt_…"
            value={token}
            onChange={(event) => setToken(event.target.value)}
            aria-invalid={wrong !== undefined}
            aria-describedby={wrong ? `${id}-wrong` : `${id}-help`}
            // biome-ignore lint/a11y/noAutofocus: it is the only thing to do here.
            autoFocus
          />
          {wrong && (
            <span id={`${id}-wrong`} className="wrong" role="alert">
              {inert(wrong.message)}. {wrong.remedy && inert(wrong.remedy)}
            </span>
          )}
          <span id={`${id}-help`} className="help">
            An admin makes one: <code>stillwake tokens create --name you --role operator</code>
          </span>
        </div>
        <Button type="submit" kind="main" disabled={busy || token.trim() === ""}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
