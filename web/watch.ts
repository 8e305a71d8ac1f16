// The page behind a share link: /watch#job=<id>&token=<read token>. Browsers do not send the part after the #, so the
// token is in no server log.
import "stillwake/element";
import "@stillwake/ui/css/tokens.css";
import "@stillwake/ui/css/base.css";
import "./watch.css";

const view = document.getElementById("view")!;

function show(): void {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const job = parameters.get("job");
  const token = parameters.get("token");
  if (!job) {
    view.replaceChildren(
      paragraph(
        "This page shows one job. Its URL must end with #job=… and usually &token=…. Ask for the complete link.",
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
  const element = document.createElement("p");
  element.textContent = text;
  return element;
}

addEventListener("hashchange", show);
show();
