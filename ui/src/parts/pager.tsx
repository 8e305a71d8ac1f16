// Pages of a list, newest first. The cursor is part of the URL, so the browser's back button leads to the page before.
import { useSearchParams } from "wouter";
import { Button } from "./button.tsx";

/** The cursor in the URL; "" for the first page. */
export function useCursor(): string {
  return useSearchParams()[0].get("cursor") ?? "";
}

/** Not shown if there is one page only. `total` is a text such as "52 jobs". */
export function Pager({ next, total }: { next: string | null; total?: string }) {
  const [params, setParams] = useSearchParams();
  const cursor = params.get("cursor");
  if (!cursor && next === null) return null;
  const go = (to: string | null) => {
    const changed = new URLSearchParams(params);
    if (to === null) changed.delete("cursor");
    else changed.set("cursor", to);
    setParams(changed);
    scrollTo(0, 0);
  };
  return (
    <div className="foot">
      {total !== undefined && <span className="soft small">{total}</span>}
      <span className="actions">
        <Button disabled={!cursor} onClick={() => go(null)}>
          Newest
        </Button>
        <Button disabled={next === null} onClick={() => go(next)}>
          Older
        </Button>
      </span>
    </div>
  );
}
