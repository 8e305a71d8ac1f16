import { Frame } from "@stillwake/ui/frame.tsx";
import { Route, Switch } from "wouter";
import { BoardPage } from "./pages/board.tsx";
import { StartPage } from "./pages/start.tsx";

export function App() {
  return (
    <Frame<{ sample: string | null }> title="Leaderboard" tokenVariable="LEADERBOARD_API_TOKEN">
      {({ sample }) => (
        <Switch>
          {/* The key: another leaderboard must not show state of the one before. */}
          <Route path="/boards/:id">{({ id }) => <BoardPage key={id} id={id} />}</Route>
          <Route>
            <StartPage sample={sample} />
          </Route>
        </Switch>
      )}
    </Frame>
  );
}
