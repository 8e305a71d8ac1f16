// The pages on one screen.
import { Frame, useShown } from "@stillwake/kit/ui/frame.tsx";
import { ListPage } from "./pages/list.tsx";
import { ProjectPage } from "./pages/project.tsx";

const TITLE = "Extraction";

export function App() {
  return (
    <Frame title={TITLE} setting="EXTRACTION_API_TOKEN">
      {(sample) => <Pages sample={sample} />}
    </Frame>
  );
}

function Pages({ sample }: { sample: string | null }) {
  const id = useShown("projects", TITLE);
  // Another project is another page: nothing of the one before may be taken for it.
  return id ? <ProjectPage key={id} id={id} /> : <ListPage sample={sample} />;
}
