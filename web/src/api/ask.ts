// Reading and acting, as pages do it: what was asked is kept and asked again as refresh.ts says; what was done is said, and what it changed is asked anew.
import { keepPreviousData, QueryCache, QueryClient, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useState } from "react";
import { useNotices } from "../parts/notices.tsx";
import { call, Refused, type Said } from "./call.ts";
import { refreshMs } from "./refresh.ts";
import { sinceTouched } from "./touched.ts";

export const WHO = "/v1/me";

export const questions: QueryClient = new QueryClient({
  queryCache: new QueryCache({
    // A token that was taken back, or that became another's: who is it now? The answer brings the way to sign in, or the buttons that are left.
    onError(error, { queryKey: [path] }) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403) && path !== WHO) {
        void questions.invalidateQueries({ queryKey: [WHO] });
      }
    },
  }),
  defaultOptions: {
    queries: {
      staleTime: 1_000,
      // Not found is an answer; only a server that is not there is asked again at once.
      retry: (times, error) => times < 2 && isAway(error),
      refetchOnWindowFocus: true,
      // A browser that believes itself offline asks all the same: that the server does not answer is what the page has to say.
      networkMode: "always",
    },
  },
});

/** The server could not answer, as opposed to answering no. */
function isAway(error: unknown): boolean {
  return error instanceof Refused && (error.status === 0 || error.status === 429 || error.status >= 500);
}

/** How often in a row a question was not answered. */
const failures = new Map<string, number>();

export interface Asking<Answer> {
  query?: Said["query"];
  /** Whether what was answered can change by itself. Default: it can. */
  moving?: (answer: Answer) => boolean;
  /** Whether it does so from second to second. Default: it does not. */
  fleeting?: (answer: Answer) => boolean;
  /** Not asked at all while false. */
  enabled?: boolean;
  /** Never asked again by itself. */
  once?: boolean;
}

/** GET, kept by its address. The last answer stays in view while a new one is fetched, so nothing blinks. */
export function useAnswer<Answer>(
  path: string,
  { query, moving, fleeting, enabled = true, once }: Asking<Answer> = {},
) {
  const name = JSON.stringify([path, query ?? {}]);
  return useQuery<Answer, Refused>({
    queryKey: [path, query ?? {}],
    async queryFn({ signal }) {
      try {
        const answer = await call<Answer>("GET", path, { query, signal });
        failures.delete(name);
        return answer;
      } catch (error) {
        if (!signal.aborted) failures.set(name, (failures.get(name) ?? 0) + 1);
        throw error;
      }
    },
    enabled,
    placeholderData: keepPreviousData,
    refetchInterval({ state: { data, error } }) {
      // Who was answered no is answered the same the next time.
      if (once || (error && !isAway(error))) return false;
      return refreshMs({
        visible: document.visibilityState === "visible",
        untouchedMs: sinceTouched(),
        moving: data === undefined || (moving?.(data) ?? true),
        fleeting: data !== undefined && (fleeting?.(data) ?? false),
        failures: error ? Math.max(1, failures.get(name) ?? 0) : 0,
      });
    },
  });
}

export interface Deed {
  method?: "POST" | "PUT" | "DELETE";
  path: string;
  body?: unknown;
  /** Said when it is done. */
  done?: string;
}

/** Does something, and says that it was done. What is refused goes to `onWrong`, and the answer is undefined. */
function useDeed(onWrong: (error: Refused) => void) {
  const notices = useNotices();
  const known = useQueryClient();
  const [busy, setBusy] = useState(false);
  const doIt = useCallback(
    async <Answer>({ method = "POST", path, body, done }: Deed): Promise<Answer | undefined> => {
      setBusy(true);
      try {
        const answer = await call<Answer>(method, path, body === undefined ? {} : { body });
        if (done) notices.say(done);
        // Not waited for: one slow answer is no reason to keep a dialog open.
        void known.invalidateQueries();
        return answer;
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        onWrong(error);
        return undefined;
      } finally {
        setBusy(false);
      }
    },
    [notices, known, onWrong],
  );
  return { doIt, busy };
}

/** For a button: what was refused is said. */
export function useAct() {
  const { doIt: act, busy } = useDeed(useNotices().refuse);
  return { act, busy };
}

/** For a form: what was refused stays, to be said at its field. */
export function useSubmit() {
  const [wrong, setWrong] = useState<Refused>();
  const { doIt, busy } = useDeed(setWrong);
  const submit = useCallback(
    <Answer>(deed: Deed): Promise<Answer | undefined> => {
      setWrong(undefined);
      return doIt<Answer>(deed);
    },
    [doIt],
  );
  return { submit, busy, wrong, setWrong };
}
