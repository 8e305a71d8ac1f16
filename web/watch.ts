// The page for the person who waits: /watch#job=<id>&token=<read token>. What stands behind the # is never sent to a server, so the token is in no log.
import "stillwake/element";
import "./src/look/tokens.css";
import "./src/look/base.css";
import "./watch.css";

const view = document.getElementById("view")!;

function show(): void {
  const given = new URLSearchParams(location.hash.slice(1));
  const job = given.get("job");
  const token = given.get("token");
  if (!job) {
    view.replaceChildren(
      paragraph(
        "This page follows one job. Its address ends with #job=… and usually with &token=…, as the one who sent it to you wrote it.",
      ),
    );
    return;
  }
  const element = document.createElement("stillwake-job");
  element.setAttribute("server", document.baseURI);
  element.setAttribute("job", job);
  if (token) element.setAttribute("token", token);
  view.replaceChildren(element);
}

function paragraph(text: string): HTMLElement {
  const made = document.createElement("p");
  made.textContent = text;
  return made;
}

addEventListener("hashchange", show);
show();
