// The text of an event stream as events. Only what the server says: one `event`, an `id`, `data` in JSON; comments are the sign that it is still there.

export interface Told {
  event: string;
  id?: string;
  // biome-ignore lint/suspicious/noExplicitAny: what the API answers.
  data: any;
}

export async function* readEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<Told, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of body) {
    rest += decoder.decode(bytes, { stream: true });
    // A part of an event that the connection was cut in is not an event.
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const told = read(rest.slice(0, end));
      rest = rest.slice(end + 2);
      if (told) yield told;
    }
  }
}

function read(block: string): Told | undefined {
  const fields: Record<string, string> = {};
  for (const line of block.split("\n")) {
    const [, name, value] = /^([^:]+)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (!name) continue;
    fields[name] = name === "data" && fields.data !== undefined ? `${fields.data}\n${value ?? ""}` : (value ?? "");
  }
  if (fields.data === undefined) return undefined;
  return { event: fields.event ?? "message", ...(fields.id && { id: fields.id }), data: JSON.parse(fields.data) };
}
