// The way on in a list that is read page by page, newest first. The browser's own way back leads to the page before.
import { Button } from "./button.tsx";

export function Pager({ cursor, next, onGo }: { cursor: string; next: string | null; onGo: (cursor: string) => void }) {
  if (cursor === "" && next === null) return null;
  return (
    <div className="foot">
      <Button disabled={cursor === ""} onClick={() => onGo("")}>
        Newest
      </Button>
      <Button disabled={next === null} onClick={() => onGo(next!)}>
        Older
      </Button>
    </div>
  );
}
