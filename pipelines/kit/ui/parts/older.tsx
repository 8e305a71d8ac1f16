// Below a list, the newest first, whose place is part of the address: how many there are, and the way to those that are older.
import { go, placeWith, usePlace } from "../place.tsx";

/** Where the list that is looked at begins; null for the newest. */
export function useCursor(): string | null {
  return new URLSearchParams(usePlace().split("?")[1]).get("cursor");
}

/** Nothing where all of them are in view. `next`: where the older ones begin. */
export function Older({ next, total }: { next: string | null; total: string }) {
  const place = usePlace();
  const cursor = useCursor();
  if (!next && !cursor) return null;
  return (
    <div className="foot">
      <span className="soft small">{total}</span>
      <span className="acts">
        <button
          type="button"
          className="button"
          disabled={!cursor}
          onClick={() => go(placeWith(place, { cursor: null }))}
        >
          Newest
        </button>
        <button
          type="button"
          className="button"
          disabled={!next}
          onClick={() => go(placeWith(place, { cursor: next }))}
        >
          Older
        </button>
      </span>
    </div>
  );
}
