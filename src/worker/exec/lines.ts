// Splits the output of a process into lines in bounded memory: a splitter for log lines, a buffer of the beginning and end for the result,
// a rate limit for the log, and a queue for a loop that may read more slowly than the process writes.

const always = () => true;

export interface LineSplitter {
  write(chunk: Buffer): void;
  /** The stream has ended: an unterminated last line counts as a line. */
  end(): void;
}

export interface LineSplitterOptions {
  /** Maximum bytes of a line; the rest is counted. */
  maxLine?: number;
  onLine(text: string): void;
  onBytes?(bytes: number): void;
  /** Called at the start of a line. After false, the rest of the chunk is only counted, which is faster. */
  wanted?(): boolean;
  onSkipped?(lines: number): void;
}

const NEWLINE = 10;
const RETURN = 13;

/** Lines end at \n, \r\n and a single \r, which ffmpeg and git use to redraw progress. */
export function lineSplitter(options: LineSplitterOptions): LineSplitter {
  const { maxLine = 16 * 1024, onLine, onBytes, wanted = always, onSkipped } = options;
  // The unfinished line: its length so far, its first bytes, and whether it is skipped.
  let length = 0;
  let kept = Buffer.alloc(0);
  let keptLength = 0;
  let skipping = false;
  let afterReturn = false;

  const keep = (chunk: Buffer, from: number, to: number) => {
    length += to - from;
    const room = Math.min(to - from, maxLine - keptLength);
    if (room <= 0 || skipping) return;
    if (kept.length < keptLength + room) {
      const larger = Buffer.allocUnsafeSlow(Math.min(maxLine, Math.max(1024, 2 * (keptLength + room))));
      kept.copy(larger, 0, 0, keptLength);
      kept = larger;
    }
    chunk.copy(kept, keptLength, from, from + room);
    keptLength += room;
  };

  const finish = (chunk: Buffer, from: number, to: number) => {
    if (skipping) {
      length = 0;
      onSkipped?.(1);
      return;
    }
    let text: string;
    if (length === 0 && to - from <= maxLine) {
      text = decode(chunk, from, to, 0, maxLine);
    } else {
      keep(chunk, from, to);
      text = decode(kept, 0, keptLength, length - keptLength, maxLine);
      length = keptLength = 0;
    }
    onLine(text);
  };

  /** Counts the lines that end in the rest of the chunk. */
  const skip = (chunk: Buffer, from: number) => {
    const size = chunk.length;
    let lines = newlines(chunk, from);
    for (let at = chunk.indexOf(RETURN, from); at >= 0; at = chunk.indexOf(RETURN, at + 1)) {
      if (chunk[at + 1] !== NEWLINE) lines++;
    }
    afterReturn = chunk[size - 1] === RETURN;
    length = size - Math.max(from, chunk.lastIndexOf(NEWLINE) + 1, chunk.lastIndexOf(RETURN) + 1);
    if (lines > 0) onSkipped?.(lines);
  };

  return {
    write(chunk) {
      const size = chunk.length;
      onBytes?.(size);
      if (size === 0) return;
      let start = afterReturn && chunk[0] === NEWLINE ? 1 : 0;
      afterReturn = false;
      while (start < size) {
        if (length === 0) skipping = !wanted();
        if (skipping && length === 0) return skip(chunk, start);
        let end = start;
        while (end < size && chunk[end] !== NEWLINE && chunk[end] !== RETURN) end++;
        if (end === size) return keep(chunk, start, end);
        finish(chunk, start, end);
        start = end + 1;
        if (chunk[end] === RETURN) {
          if (start === size) afterReturn = true;
          else if (chunk[start] === NEWLINE) start++;
        }
      }
    },
    end() {
      if (length > 0) finish(kept, 0, 0);
    },
  };
}

/** Postgres cannot store NUL; the symbol U+2400 replaces it. */
export function withoutNul(text: string): string {
  return text.includes("\0") ? text.replaceAll("\0", "\u2400") : text;
}

function decode(bytes: Buffer, from: number, to: number, omitted: number, maxLine: number): string {
  let end = omitted > 0 ? wholeCharacters(bytes, from, to) : to;
  let text = withoutNul(bytes.toString("utf8", from, end));
  // A NUL or a byte that is not valid UTF-8 becomes three bytes, and the limit is for the stored text.
  if ((end - from) * 3 > maxLine && Buffer.byteLength(text) > maxLine) {
    end = wholeCharacters(bytes, from, from + Math.floor(maxLine / 3));
    text = withoutNul(bytes.toString("utf8", from, end));
  }
  const missing = omitted + to - end;
  return missing > 0 ? `${text}… (${missing} bytes omitted)` : text;
}

/** `to`, or up to three bytes before it, so that no character is split. */
function wholeCharacters(bytes: Buffer, from: number, to: number): number {
  for (let back = 1; back <= 3 && to - back >= from; back++) {
    const byte = bytes[to - back]!;
    if (byte < 0x80 || byte > 0xf4) return to;
    if (byte >= 0xc0) return back < (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) ? to - back : to;
  }
  return to;
}

export interface OutputKeeper {
  write(chunk: Buffer): void;
  /** The complete output including NULs, or its beginning, a line that counts what was omitted, and its end. */
  text(): string;
}

/** A cut is moved to a line end within this distance. */
const MAX_CUT_SHIFT = 16 * 1024;

export function outputKeeper({ headBytes, tailBytes }: { headBytes: number; tailBytes: number }): OutputKeeper {
  const head = growingBuffer(headBytes);
  const tail = growingBuffer(tailBytes);
  /** Index of the oldest byte of the full tail. */
  let oldest = 0;
  let afterHead = 0;
  let linesAfterHead = 0;

  const writeTail = (chunk: Buffer) => {
    if (chunk.length > tailBytes) chunk = chunk.subarray(chunk.length - tailBytes);
    const appended = tail.append(chunk);
    if (appended === chunk.length || tailBytes === 0) return;
    // The tail is full and becomes a ring buffer.
    const rest = chunk.subarray(appended);
    const first = Math.min(rest.length, tailBytes - oldest);
    rest.copy(tail.bytes(), oldest, 0, first);
    rest.copy(tail.bytes(), 0, first);
    oldest = (oldest + rest.length) % tailBytes;
  };

  return {
    write(chunk) {
      const taken = head.append(chunk);
      if (taken === chunk.length) return;
      const rest = taken === 0 ? chunk : chunk.subarray(taken);
      afterHead += rest.length;
      linesAfterHead += newlines(rest);
      writeTail(rest);
    },
    text() {
      const ring = tail.bytes();
      const last = Buffer.concat([ring.subarray(oldest), ring.subarray(0, oldest)]);
      const first = head.bytes();
      const evicted = afterHead - last.length;
      if (evicted === 0) return Buffer.concat([first, last]).toString();
      const lineEnd = first.lastIndexOf(NEWLINE) + 1;
      const cut =
        lineEnd > 0 && first.length - lineEnd <= MAX_CUT_SHIFT ? lineEnd : wholeCharacters(first, 0, first.length);
      const lineStart = last.indexOf(NEWLINE) + 1;
      let resumed = lineStart > 0 && lineStart <= MAX_CUT_SHIFT ? lineStart : 0;
      while (resumed < 3 && last[resumed]! >= 0x80 && last[resumed]! < 0xc0) resumed++;
      const beginning = first.toString("utf8", 0, cut);
      const end = last.subarray(resumed);
      const bytes = evicted + first.length - cut + resumed;
      const lines = linesAfterHead - newlines(end) + newlines(first, cut);
      const marker = `… (${counted(lines, "line")}, ${counted(bytes, "byte")} omitted)\n`;
      return `${beginning}${beginning === "" || beginning.endsWith("\n") ? "" : "\n"}${marker}${end}`;
    },
  };
}

/** "1 line", "12,345 lines". */
export function counted(amount: number, word: string): string {
  return `${amount.toLocaleString("en-US")} ${word}${amount === 1 ? "" : "s"}`;
}

/** A buffer that starts small and doubles up to `maxBytes`. */
function growingBuffer(maxBytes: number) {
  let buffer = Buffer.alloc(0);
  let length = 0;
  return {
    append(chunk: Buffer): number {
      const room = Math.min(chunk.length, maxBytes - length);
      if (room <= 0) return 0;
      if (buffer.length < length + room) {
        const larger = Buffer.allocUnsafeSlow(Math.min(maxBytes, Math.max(1024, 2 * (length + room))));
        buffer.copy(larger, 0, 0, length);
        buffer = larger;
      }
      chunk.copy(buffer, length, 0, room);
      length += room;
      return room;
    },
    bytes: () => buffer.subarray(0, length),
  };
}

/** The native search is tenfold faster at 100 bytes per line; below 16 bytes a byte loop is faster. */
function newlines(bytes: Buffer, from = 0): number {
  let count = 0;
  for (let at = bytes.indexOf(NEWLINE, from); at >= 0; at = bytes.indexOf(NEWLINE, at + 1)) {
    count++;
    if (count === 64 && at - from < 1024) {
      for (at++; at < bytes.length; at++) if (bytes[at] === NEWLINE) count++;
    }
  }
  return count;
}

export interface LineRate {
  /** Whether take() would accept a line now. */
  ready(nowMs: number): boolean;
  take(bytes: number, nowMs: number): boolean;
}

/** Token buckets for lines and bytes. A line passes while both are positive: a long line may overdraw. */
export function lineRate(rate: { perSecond: number; burst: number; bytesPerSecond: number }): LineRate {
  let lines = rate.burst;
  let bytes = rate.bytesPerSecond;
  let filledAt: number | undefined;
  const ready = (nowMs: number) => {
    const seconds = Math.max(0, nowMs - (filledAt ?? nowMs)) / 1000;
    filledAt = nowMs;
    lines = Math.min(rate.burst, lines + seconds * rate.perSecond);
    bytes = Math.min(rate.bytesPerSecond, bytes + seconds * rate.bytesPerSecond);
    return lines >= 1 && bytes > 0;
  };
  return {
    ready,
    take(size, nowMs) {
      if (!ready(nowMs)) return false;
      lines -= 1;
      bytes -= size;
      return true;
    },
  };
}

export interface LineQueue {
  push(line: string): void;
  /** The next line, or undefined after the last one. */
  next(): Promise<string | undefined>;
  end(): void;
  /** True when the producer must stop until onRoom(). */
  full(): boolean;
}

/** A queue between a process that writes and a loop that reads. 32 is the memory of a string beyond its characters. */
export function lineQueue({ maxSize, onRoom }: { maxSize: number; onRoom(): void }): LineQueue {
  let lines: string[] = [];
  let first = 0;
  let size = 0;
  let ended = false;
  let wasFull = false;
  let onChange = () => {};
  return {
    push(line) {
      lines.push(line);
      size += line.length + 32;
      wasFull ||= size >= maxSize;
      onChange();
    },
    async next() {
      while (first === lines.length && !ended) await new Promise<void>((resolve) => (onChange = resolve));
      if (first === lines.length) return undefined;
      const line = lines[first++]!;
      size -= line.length + 32;
      if (first === lines.length) {
        lines = [];
        first = 0;
      }
      if (wasFull && size < maxSize / 2) {
        wasFull = false;
        onRoom();
      }
      return line;
    },
    end() {
      ended = true;
      onChange();
    },
    full: () => wasFull,
  };
}
