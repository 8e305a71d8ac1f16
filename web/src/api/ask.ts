// Reading and acting, as pages do it: what was asked is kept and asked again as refresh.ts says; what was done is said, and what it changed is asked anew.
import { keepPreviousData, QueryClient, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useState } from "react";
import { useNotices } from "../parts/notices.tsx";
import { call, Refused, type Said } from "./call.ts";
import { refreshMs } from "./refresh.ts";
import { sinceTouched } from "./touched.ts";

export const questions = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 1_000,
      // Not found is an answer; only a server that is not there is asked again at once.
      retry: (times, error) => times < 2 && error instanceof Refused && (error.status === 0 || error.status === 503),
      refetchOnWindowFocus: true,
    },
  },
});

export interface Asking<Answer> {
  query?: Said["query"];
  /** Whether what was answered can change by itself. Default: it can. */
  moving?: (answer: Answer) => boolean;
  /** Not asked at all while false. */
  enabled?: boolean;
  /** Never asked again by itself. */
  once?: boolean;
}

/** GET, kept by its address. The last answer stays in view while a new one is fetched, so nothing blinks. */
export function useAnswer<Answer>(path: string, { query, moving, enabled = true, once }: Asking<Answer> = {}) {
  return useQuery<Answer, Refused>({
    queryKey: [path, query ?? {}],
    queryFn: ({ signal }) => call<Answer>("GET", path, { query, signal }),
    enabled,
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) =>
      once
        ? false
        : refreshMs({
            visible: document.visibilityState === "visible",
            untouchedMs: sinceTouched(),
            moving: state.data === undefined || (moving?.(state.data) ?? true),
            failures: state.error ? Math.max(1, state.fetchFailureCount) : 0,
          }),
  });
}

export interface Deed {
  method?: "POST" | "PUT" | "DELETE";
  path: string;
  body?: unknown;
  /** Said when it is done. */
  done?: string;
}

/** Does something and says how it went. `act` answers undefined when it was refused, which has then been said. */
export function useAct() {
  const notices = useNotices();
  const known = useQueryClient();
  const [busy, setBusy] = useState(false);
  const act = useCallback(
    async <Answer>({ method = "POST", path, body, done }: Deed): Promise<Answer | undefined> => {
      setBusy(true);
      try {
        const answer = await call<Answer>(method, path, body === undefined ? {} : { body });
        if (done) notices.say(done);
        await known.invalidateQueries();
        return answer;
      } catch (error) {
        notices.refuse(error);
        return undefined;
      } finally {
        setBusy(false);
      }
    },
    [notices, known],
  );
  return { act, busy };
}

/** The same for a form: what was refused stays, to be said at its field. */
export function useSubmit() {
  const notices = useNotices();
  const known = useQueryClient();
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState<Refused>();
  const submit = useCallback(
    async <Answer>({ method = "POST", path, body, done }: Deed): Promise<Answer | undefined> => {
      setBusy(true);
      setWrong(undefined);
      try {
        const answer = await call<Answer>(method, path, body === undefined ? {} : { body });
        if (done) notices.say(done);
        await known.invalidateQueries();
        return answer;
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        setWrong(error);
        return undefined;
      } finally {
        setBusy(false);
      }
    },
    [notices, known],
  );
  return { submit, busy, wrong, setWrong };
}
