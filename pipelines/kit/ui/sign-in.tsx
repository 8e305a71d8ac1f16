// Who is there? Asked where the server has a token.
import { type FormEvent, useState } from "react";
import { useAct } from "./ask.ts";
import { Wrong } from "./parts/panel.tsx";

/** `setting`: what the token is called where the server is set up. */
export function SignIn({ setting, onIn }: { setting: string; onIn: () => void }) {
  const [token, setToken] = useState("");
  const { act, busy, wrong } = useAct();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (await act("POST", "session", { token })) onIn();
  };
  return (
    <main className="sign-in">
      <form className="panel form" onSubmit={(event) => void submit(event)}>
        <h1>Sign in</h1>
        {wrong && <Wrong error={wrong} />}
        <div className="field">
          <label htmlFor="token">Token</label>
          <input
            id="token"
            className="input"
            type="password"
            autoComplete="current-password"
            required
            value={token}
            onChange={(event) => setToken(event.target.value)}
            aria-describedby="token-help"
          />
          <span id="token-help" className="help">
            What the server was given as {setting}.
          </span>
        </div>
        <button type="submit" className="button" data-kind="main" disabled={busy}>
          Sign in
        </button>
      </form>
    </main>
  );
}
