// Asking the API. What it refuses is an error with its own words. What was answered stays in view until something newer comes, and is asked for again only
// while somebody looks at the page.
import { useCallback, useEffect, useRef, useState } from "react";
import { serverSaid } from "./parts/now.ts";
import { addressOf } from "./place.tsx";

/** What was answered, as JSON has it. */
export type Told<T> = T extends Date ? string : T extends object ? { [Name in keyof T]: Told<T[Name]> } : T;

/** A list, as far as it was asked for. */
export interface Pages<Row> {
  rows: Row[];
  /** Where to go on; null at the end. */
  cursor: string | null;
  /** Of all pages together. */
  total: number;
}

/** The body of an answer that is a refusal, as far as a page shows it. */
interface Problem {
  status: number;
  detail?: string;
  remedy?: string;
  field?: string;
}

export class Refused extends Error {
  readonly status: number;
  readonly remedy: string | undefined;
  readonly field: string | undefined;

  constructor({ status, detail, remedy, field }: Problem) {
    super(detail ?? `The server answered ${status}`);
    this.name = "Refused";
    this.status = status;
    this.remedy = remedy;
    this.field = field;
  }
}

const strangers = new Set<() => void>();

/** Told whenever the server wants to know who is there. */
export function onStranger(listener: () => void): () => void {
  strangers.add(listener);
  return () => strangers.delete(listener);
}

export async function call<Answer>(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<Answer> {
  let answer: Response;
  try {
    answer = await fetch(addressOf(`api/${path}`), {
      method,
      ...(body !== undefined && { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
      ...(signal && { signal }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused({
      status: 0,
      detail: "The server does not answer",
      remedy: "Nothing is lost: what is in work goes on without it.",
    });
  }
  serverSaid(answer.headers.get("date"));
  if (answer.status === 204) return undefined as Answer;
  const said = await answer.json().catch(() => undefined);
  if (answer.ok && said !== undefined) return said as Answer;
  if (answer.status === 401 && path !== "session") for (const listener of strangers) listener();
  throw new Refused({ ...(said as Problem | undefined), status: answer.status });
}

export interface Asked<Answer> {
  data: Answer | undefined;
  error: Refused | undefined;
  /** What is shown is not yet what was asked for. */
  stale: boolean;
  reload(): void;
}

/**
 * GET; null asks nothing. `every`: so many milliseconds after an answer it is asked for again, while the page is in view. `unseen`: at least so many where
 * nobody looks; without it not at all. `version`: another one is a reason to ask again at once.
 */
export function useAnswer<Answer>(
  path: string | null,
  {
    every,
    unseen,
    version = "",
  }: { every?: (answer: Answer) => number | undefined; unseen?: number; version?: string } = {},
): Asked<Answer> {
  const [told, setTold] = useState<{ path: string | null; data?: Answer; error?: Refused }>({ path: null });
  const [round, setRound] = useState(0);
  const reload = useCallback(() => setRound((number) => number + 1), []);
  const pace = useRef(every);
  pace.current = every;
  useEffect(() => {
    if (path === null) return;
    const leaving = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = (ms: number | undefined) => {
      if (ms !== undefined) timer = setTimeout(reload, ms);
    };
    call<Answer>("GET", path, undefined, leaving.signal).then(
      (data) => {
        if (leaving.signal.aborted) return;
        setTold({ path, data });
        const next = pace.current?.(data);
        if (next === undefined || document.visibilityState === "visible") again(next);
        else if (unseen !== undefined) again(Math.max(next, unseen));
      },
      (error) => {
        if (leaving.signal.aborted || !(error instanceof Refused)) return;
        setTold((before) => ({ ...before, path, error }));
        // Who was answered no is answered the same the next time.
        if (error.status === 0 || error.status >= 500) again(5000);
      },
    );
    const back = () => document.visibilityState === "visible" && pace.current && reload();
    document.addEventListener("visibilitychange", back);
    return () => {
      leaving.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", back);
    };
  }, [path, round, version, unseen, reload]);
  return { data: told.data, error: told.path === path ? told.error : undefined, stale: told.path !== path, reload };
}

/** For a button or a form: what was refused stays until the next try. */
export function useAct(): {
  act: <Answer>(method: string, path: string, body?: unknown) => Promise<Answer | undefined>;
  busy: boolean;
  wrong: Refused | undefined;
} {
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState<Refused>();
  const act = useCallback(async <Answer>(method: string, path: string, body?: unknown): Promise<Answer | undefined> => {
    setBusy(true);
    setWrong(undefined);
    try {
      return (await call<Answer>(method, path, body)) ?? ({} as Answer);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setWrong(error);
      return undefined;
    } finally {
      setBusy(false);
    }
  }, []);
  return { act, busy, wrong };
}
