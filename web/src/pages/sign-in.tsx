import { RequestError, request } from "@stillwake/ui/api/request.ts";
import { SignInForm } from "@stillwake/ui/sign-in.tsx";
import { useLocation } from "wouter";

export function SignInPage({ onSignedIn, signedIn }: { onSignedIn: () => void; signedIn: boolean }) {
  const [path, navigate] = useLocation();
  async function signIn(token: string): Promise<void> {
    const { role } = await request<{ role: string }>("POST", "/v1/session", { body: { token } });
    if (role === "worker") {
      await request("DELETE", "/v1/session");
      throw new RequestError({
        code: "FORBIDDEN",
        status: 403,
        detail: "This token has the role worker and cannot sign in",
        remedy: "Ask an admin for a token with the role reader, operator or admin.",
      });
    }
    onSignedIn();
    if (path === "/sign-in") navigate("/");
  }
  return (
    <SignInForm
      application="Stillwake"
      title={signedIn ? "Sign in as another user" : "Sign in"}
      placeholder="swt_…"
      help={
        <>
          An admin can create one: <code>stillwake tokens create --name you --role operator</code>
        </>
      }
      signIn={signIn}
    />
  );
}
