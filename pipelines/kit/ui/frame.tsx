// The frame around the pages of an application: who it is, the way past it for the keyboard, and the question who is there where the server asks it.
import { type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { onStranger, useAnswer } from "./ask.ts";
import { addressOf, Link, usePlace } from "./place.tsx";
import { SignIn } from "./sign-in.tsx";

/** `setting`: what the server's token is called where it is set up. `children`: the pages; `sample` is what the server has to show, if anything. */
export function Frame({
  title,
  setting,
  children,
}: {
  title: string;
  setting: string;
  children: (sample: string | null) => ReactNode;
}) {
  const [stranger, setStranger] = useState(false);
  const me = useAnswer<{ sample: string | null }>("me");
  useEffect(() => onStranger(() => setStranger(true)), []);
  const enter = useCallback(() => {
    setStranger(false);
    me.reload();
  }, [me.reload]);
  if (stranger) return <SignIn setting={setting} onIn={enter} />;
  return (
    <>
      <a className="skip" href="#content">
        Skip to content
      </a>
      <header className="bar">
        <Link to="" className="brand">
          <img src={addressOf("mark.svg")} alt="" />
          {title}
        </Link>
      </header>
      <main id="content" className="page" tabIndex={-1}>
        {children(me.data?.sample ?? null)}
      </main>
    </>
  );
}

/** The id of what is shown at "<kind>/<id>"; undefined on the first page, which has the title of the application. */
export function useShown(kind: string, title: string): string | undefined {
  const [path = ""] = usePlace().split("?");
  const [first, id = "", ...rest] = path.split("/");
  const shown = first === kind && /^[\w-]+$/.test(id) && rest.length === 0 ? id : undefined;
  // A new page is where the keyboard goes on.
  const before = useRef(path);
  useEffect(() => {
    if (shown === undefined) document.title = title;
    if (before.current !== path) document.getElementById("content")?.focus({ preventScroll: true });
    before.current = path;
  }, [path, shown, title]);
  return shown;
}
