// The pages on one screen.
import { Frame, useShown } from "@stillwake/kit/ui/frame.tsx";
import { BoardPage } from "./pages/board.tsx";
import { StartPage } from "./pages/start.tsx";

const TITLE = "Leaderboard";

export function App() {
  return (
    <Frame title={TITLE} setting="LEADERBOARD_API_TOKEN">
      {(sample) => <Pages sample={sample} />}
    </Frame>
  );
}

function Pages({ sample }: { sample: string | null }) {
  const id = useShown("boards", TITLE);
  // Another leaderboard is another page: nothing of the one before may be taken for it.
  return id ? <BoardPage key={id} id={id} /> : <StartPage sample={sample} />;
}
