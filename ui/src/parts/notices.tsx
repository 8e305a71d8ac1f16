// Notices in the corner of the page, also read by screen readers: what was done, and what failed.
import { createContext, type ReactNode, useCallback, useContext, useMemo, useRef, useState } from "react";
import { RequestError } from "../api/request.ts";
import { escapeText } from "../format.ts";

interface Notice {
  id: number;
  text: string;
  remedy?: string | undefined;
  tone: "plain" | "bad";
}

interface NoticeApi {
  show(text: string): void;
  showError(error: unknown): void;
}

const Context = createContext<NoticeApi>({ show: () => {}, showError: () => {} });

export const useNotices = () => useContext(Context);

const SHOWN_MS = 6_000;

export function Notices({ children }: { children: ReactNode }) {
  const [notices, setNotices] = useState<Notice[]>([]);
  const lastId = useRef(0);
  const remove = useCallback((id: number) => setNotices((all) => all.filter((notice) => notice.id !== id)), []);
  const add = useCallback(
    (notice: Omit<Notice, "id">) => {
      const id = ++lastId.current;
      setNotices((all) => [...all.slice(-3), { ...notice, id }]);
      // An error stays until it is dismissed.
      if (notice.tone === "plain") setTimeout(() => remove(id), SHOWN_MS);
    },
    [remove],
  );
  const api = useMemo<NoticeApi>(
    () => ({
      show: (text) => add({ text, tone: "plain" }),
      showError: (error) =>
        add({
          text: error instanceof Error ? error.message : String(error),
          remedy: error instanceof RequestError ? error.remedy : undefined,
          tone: "bad",
        }),
    }),
    [add],
  );
  return (
    <Context.Provider value={api}>
      {children}
      <div className="notices" role="status" aria-live="polite">
        {notices.map(({ id, text, remedy, tone }) => (
          <div key={id} className="notice" data-tone={tone}>
            <div className="untrusted">
              <div>{escapeText(text)}</div>
              {remedy && <div className="soft">{escapeText(remedy)}</div>}
            </div>
            <button type="button" className="button" data-kind="plain" onClick={() => remove(id)} aria-label="Dismiss">
              ×
            </button>
          </div>
        ))}
      </div>
    </Context.Provider>
  );
}
