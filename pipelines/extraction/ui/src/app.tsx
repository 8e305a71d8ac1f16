import { Frame } from "@stillwake/ui/frame.tsx";
import { Route, Switch } from "wouter";
import { ListPage } from "./pages/list.tsx";
import { ProjectPage } from "./pages/project.tsx";

export function App() {
  return (
    <Frame<{ sample: string | null }> title="Extraction" tokenVariable="EXTRACTION_API_TOKEN">
      {({ sample }) => (
        <Switch>
          {/* The key: another project must not show state of the one before. */}
          <Route path="/projects/:id">{({ id }) => <ProjectPage key={id} id={id} />}</Route>
          <Route>
            <ListPage sample={sample} />
          </Route>
        </Switch>
      )}
    </Frame>
  );
}
