// Parser of server-sent events. The Stillwake server writes one `id`, one `event` and one `data` (JSON) per event;
// comments and `retry` are not events.

export interface SseEvent {
  event: string;
  id?: string;
  // biome-ignore lint/suspicious/noExplicitAny: the JSON of the API.
  data: any;
}

/**
 * Returns a function that takes the bytes of one connection, in chunks of any size, and calls `onEvent` for each
 * complete event. An event that the end of the connection cut off is dropped.
 */
export function createEventParser(onEvent: (event: SseEvent) => void): (bytes: Uint8Array) => void {
  const decoder = new TextDecoder();
  let rest = "";
  return (bytes) => {
    const text = rest + decoder.decode(bytes, { stream: true });
    let from = 0;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n", from)) {
      const event = parseEvent(text.slice(from, end));
      from = end + 2;
      if (event) onEvent(event);
    }
    rest = text.slice(from);
  };
}

export async function* readEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<SseEvent, void, undefined> {
  const events: SseEvent[] = [];
  const parse = createEventParser((event) => events.push(event));
  for await (const bytes of body) {
    parse(bytes);
    yield* events.splice(0);
  }
}

function parseEvent(block: string): SseEvent | undefined {
  let event = "message";
  let id = "";
  let data: string | undefined;
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon < 0) continue;
    const name = line.slice(0, colon);
    const value = line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") data = data === undefined ? value : `${data}\n${value}`;
    else if (name === "event") event = value;
    else if (name === "id") id = value;
  }
  return data === undefined ? undefined : { event, ...(id && { id }), data: JSON.parse(data) };
}
