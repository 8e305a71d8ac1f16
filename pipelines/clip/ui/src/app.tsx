import { Frame } from "@stillwake/ui/frame.tsx";
import { Route, Switch } from "wouter";
import type { Me } from "../../src/model.ts";
import { ClipPage } from "./pages/clip.tsx";
import { StartPage } from "./pages/start.tsx";

export function App() {
  return (
    <Frame<Me> title="Clips" tokenVariable="CLIP_API_TOKEN">
      {(me) => (
        <Switch>
          {/* The key: another clip must not show state of the one before. */}
          <Route path="/clips/:id">{({ id }) => <ClipPage key={id} id={id} />}</Route>
          <Route>
            <StartPage me={me} />
          </Route>
        </Switch>
      )}
    </Frame>
  );
}
