// The pages on one screen, and the frame around them.
import { useCallback, useEffect, useRef, useState } from "react";
import { onStranger, useAnswer } from "./ask.ts";
import { ListPage } from "./pages/list.tsx";
import { ProjectPage } from "./pages/project.tsx";
import { SignIn } from "./pages/sign-in.tsx";
import { addressOf, Link, usePlace } from "./place.tsx";

export function App() {
  const [stranger, setStranger] = useState(false);
  const me = useAnswer<{ sample: string | null }>("me");
  useEffect(() => onStranger(() => setStranger(true)), []);
  const enter = useCallback(() => {
    setStranger(false);
    me.reload();
  }, [me.reload]);
  if (stranger) return <SignIn onIn={enter} />;
  return (
    <>
      <a className="skip" href="#content">
        Skip to content
      </a>
      <header className="bar">
        <Link to="" className="brand">
          <img src={addressOf("mark.svg")} alt="" />
          Extraction
        </Link>
      </header>
      <main id="content" className="page" tabIndex={-1}>
        <Pages sample={me.data?.sample ?? null} />
      </main>
    </>
  );
}

function Pages({ sample }: { sample: string | null }) {
  const place = usePlace();
  const [path = ""] = place.split("?");
  const id = /^projects\/([^/]+)$/.exec(path)?.[1];
  // A new page is where the keyboard goes on.
  const before = useRef(path);
  useEffect(() => {
    if (!id) document.title = "Extraction";
    if (before.current !== path) document.getElementById("content")?.focus({ preventScroll: true });
    before.current = path;
  }, [path, id]);
  // Another project is another page: nothing of the one before may be taken for it.
  return id ? <ProjectPage key={id} id={decodeURIComponent(id)} /> : <ListPage sample={sample} />;
}
