// What was done, and what was refused and why, said at the edge of the page and to screen readers.
import { createContext, type ReactNode, useCallback, useContext, useMemo, useRef, useState } from "react";
import { Refused } from "../api/call.ts";
import { inert } from "./words.ts";

interface Notice {
  id: number;
  text: string;
  remedy?: string | undefined;
  tone: "plain" | "bad";
}

interface Notices {
  say(text: string): void;
  refuse(error: unknown): void;
}

const Context = createContext<Notices>({ say: () => {}, refuse: () => {} });

export const useNotices = () => useContext(Context);

const STAYS_MS = 6_000;

export function NoticeBoard({ children }: { children: ReactNode }) {
  const [notices, setNotices] = useState<Notice[]>([]);
  const last = useRef(0);
  const drop = useCallback((id: number) => setNotices((all) => all.filter((one) => one.id !== id)), []);
  const put = useCallback(
    (notice: Omit<Notice, "id">) => {
      const id = ++last.current;
      setNotices((all) => [...all.slice(-3), { ...notice, id }]);
      // A refusal stays until it is read.
      if (notice.tone === "plain") setTimeout(() => drop(id), STAYS_MS);
    },
    [drop],
  );
  const board = useMemo<Notices>(
    () => ({
      say: (text) => put({ text, tone: "plain" }),
      refuse: (error) =>
        put({
          text: error instanceof Error ? error.message : String(error),
          remedy: error instanceof Refused ? error.remedy : undefined,
          tone: "bad",
        }),
    }),
    [put],
  );
  return (
    <Context.Provider value={board}>
      {children}
      <div className="notices" role="status" aria-live="polite">
        {notices.map(({ id, text, remedy, tone }) => (
          <div key={id} className="notice" data-tone={tone}>
            <div className="foreign">
              <div>{inert(text)}</div>
              {remedy && <div className="soft">{inert(remedy)}</div>}
            </div>
            <button type="button" className="button" data-kind="plain" onClick={() => drop(id)} aria-label="Dismiss">
              ×
            </button>
          </div>
        ))}
      </div>
    </Context.Provider>
  );
}
