// Reading and writing through the API with TanStack Query. Reads are cached by path and refetched as refresh.ts says; a
// successful write invalidates all of them.
import { keepPreviousData, QueryCache, QueryClient, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { useNotices } from "../parts/notices.tsx";
import { refreshInterval } from "./refresh.ts";
import { RequestError, type RequestOptions, request } from "./request.ts";
import { getIdleMs } from "./user-activity.ts";

/**
 * `identityPath` returns who is signed in. It is refetched when another request is unauthorized or forbidden: the token
 * was revoked, or the session ended. The page then shows the sign-in form, or fewer buttons.
 */
export function createQueryClient(identityPath: string): QueryClient {
  const client: QueryClient = new QueryClient({
    queryCache: new QueryCache({
      onError(error, { queryKey: [path] }) {
        if (isDenied(error) && path !== identityPath) void client.invalidateQueries({ queryKey: [identityPath] });
      },
    }),
    defaultOptions: {
      queries: {
        staleTime: 1_000,
        // "Not found" is final; a server that does not respond is retried.
        retry: (attempts, error) => attempts < 2 && isTemporary(error),
        refetchOnWindowFocus: true,
        // Also without a network: the page then reports that the server does not respond.
        networkMode: "always",
      },
    },
  });
  return client;
}

const isDenied = (error: unknown) => error instanceof RequestError && (error.status === 401 || error.status === 403);
const isTemporary = (error: unknown) => error instanceof RequestError && error.isTemporary;

/** Consecutive failures by query. */
const failures = new Map<string, number>();

export interface ApiQueryOptions<Result> {
  query?: RequestOptions["query"];
  /** Whether the result can change without an action on this page. Default: it can. */
  changing?: (result: Result) => boolean;
  /** Whether it changes within seconds. Default: it does not. */
  urgent?: (result: Result) => boolean;
  /** No request while false. */
  enabled?: boolean;
  /** Whether the result is final and never refetched on a timer. */
  once?: boolean | ((result: Result) => boolean);
  /** The refetch interval in a hidden tab. Default: none. */
  hiddenMs?: number;
  /** A new value refetches at once. */
  version?: string;
}

/** GET. The previous result stays visible while the next one is fetched. */
export function useApiQuery<Result>(path: string, options: ApiQueryOptions<Result> = {}) {
  const { query = {}, changing, urgent, enabled = true, once = false, hiddenMs, version = "" } = options;
  const key = [path, query, version];
  const name = JSON.stringify(key);
  return useQuery<Result, RequestError>({
    queryKey: key,
    async queryFn({ signal }) {
      try {
        const result = await request<Result>("GET", path, { query, signal });
        failures.delete(name);
        return result;
      } catch (error) {
        if (!signal.aborted) failures.set(name, (failures.get(name) ?? 0) + 1);
        throw error;
      }
    },
    enabled,
    placeholderData: keepPreviousData,
    refetchIntervalInBackground: hiddenMs !== undefined,
    refetchInterval({ state: { data, error } }) {
      const isFinal = typeof once === "function" ? data !== undefined && once(data) : once;
      // A rejected request would be rejected again.
      if (isFinal || (error && !error.isTemporary)) return false;
      return refreshInterval({
        visible: document.visibilityState === "visible",
        idleMs: getIdleMs(),
        changing: data === undefined || (changing?.(data) ?? true),
        urgent: data !== undefined && (urgent?.(data) ?? false),
        failures: error ? Math.max(1, failures.get(name) ?? 0) : 0,
        hiddenMs,
      });
    },
  });
}

/** Refetches everything that is shown. */
export function useRefresh(): () => void {
  const client = useQueryClient();
  return useCallback(() => void client.invalidateQueries(), [client]);
}

/** Refetches everything when the value changes, except from undefined. */
export function useRefreshOnChange(value: unknown): void {
  const refresh = useRefresh();
  const before = useRef(value);
  useEffect(() => {
    if (before.current !== undefined && before.current !== value) refresh();
    before.current = value;
  }, [value, refresh]);
}

export interface ApiAction {
  method?: "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  body?: unknown;
  /** The notice after success. */
  done?: string;
}

/** Returns the response, {} for an empty one, and undefined after a failure, which goes to `onError`. */
function useWrite(onError: (error: RequestError) => void) {
  const notices = useNotices();
  const refresh = useRefresh();
  const [busy, setBusy] = useState(false);
  const write = useCallback(
    async <Result>({ method = "POST", path, body, done }: ApiAction): Promise<Result | undefined> => {
      setBusy(true);
      try {
        const result = await request<Result>(method, path, body === undefined ? {} : { body });
        if (done) notices.show(done);
        // Not awaited: a slow refetch must not keep a dialog open.
        refresh();
        return result ?? ({} as Result);
      } catch (error) {
        if (!(error instanceof RequestError)) throw error;
        // The session may have ended: the refetch of the identity then shows the sign-in form.
        if (error.status === 401) refresh();
        onError(error);
        return undefined;
      } finally {
        setBusy(false);
      }
    },
    [notices, refresh, onError],
  );
  return { write, busy };
}

/** For a button: an error is shown as a notice. */
export function useAction() {
  const { write, busy } = useWrite(useNotices().showError);
  return { run: write, busy };
}

/** For a form: the error is kept until the next submit, to be shown at its field. */
export function useSubmit() {
  const [error, setError] = useState<RequestError>();
  const { write, busy } = useWrite(setError);
  const submit = useCallback(
    <Result>(action: ApiAction): Promise<Result | undefined> => {
      setError(undefined);
      return write<Result>(action);
    },
    [write],
  );
  return { submit, busy, error, setError };
}
