// The bytes of an event stream as events. A connection may cut them anywhere, also within a character; what is not whole when it ends was not said.
import type { Told } from "./wire.ts";

/** Answers a function that takes the bytes of one connection, piece by piece, and calls for each event that is complete. */
export function eventReader(onTold: (told: Told) => void): (bytes: Uint8Array) => void {
  const decoder = new TextDecoder();
  let rest = "";
  return (bytes) => {
    const text = rest + decoder.decode(bytes, { stream: true });
    let from = 0;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n", from)) {
      const told = read(text.slice(from, end));
      from = end + 2;
      if (told) onTold(told);
    }
    rest = text.slice(from);
  };
}

/** The server writes one `id`, one `event`, one `data`; comments and `retry` are not events. */
function read(block: string): Told | undefined {
  let event = "";
  let id = "";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("data: ")) data = line.slice(6);
    else if (line.startsWith("event: ")) event = line.slice(7);
    else if (line.startsWith("id: ")) id = line.slice(4);
  }
  if (event === "" || data === "") return undefined;
  return { event, ...(id && { id }), data: JSON.parse(data) } as Told;
}
