// A search field of a list. It searches when the typing pauses.
import { useEffect, useId, useState } from "react";

export function SearchBox({ label, onSearch }: { label: string; onSearch: (query: string) => void }) {
  const id = useId();
  const [query, setQuery] = useState<string>();
  useEffect(() => {
    if (query === undefined) return;
    const timer = setTimeout(() => onSearch(query), 250);
    return () => clearTimeout(timer);
  }, [query]);
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        className="input"
        type="search"
        maxLength={200}
        value={query ?? ""}
        onChange={(event) => setQuery(event.target.value)}
      />
    </div>
  );
}
