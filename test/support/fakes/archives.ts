// Builds tar and zip archives byte by byte, so that they can contain what no tool would write: names that point
// outside, wrong sizes, many files that share their bytes.
import fs from "node:fs";
import zlib from "node:zlib";

export interface Item {
  name: string;
  content?: string | Buffer;
  /** As in ustar: 0 file, 1 hard link, 2 symbolic link, 3 and 4 devices, 5 directory, 6 pipe. */
  type?: string;
  link?: string;
  mode?: number;
  /** The size in the zip header, instead of the real one. */
  claim?: number;
  crc?: number;
}

function tarHeader(name: string, size: number, type: string, { link = "", mode = 0o644 } = {}): Buffer {
  const header = Buffer.alloc(512);
  header.write(name, 0, 100);
  for (const [at, value] of [
    [100, mode],
    [108, 0],
    [116, 0],
  ] as const)
    header.write(value.toString(8).padStart(7, "0"), at);
  header.write(size.toString(8).padStart(11, "0"), 124);
  header.write("00000000000", 136);
  header.write("        ", 148);
  header.write(type, 156);
  header.write(link, 157);
  header.write("ustar\x0000", 257, "latin1");
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}

/** A very large pax header for a file that does not follow. */
export function oversizedHeader(): Buffer {
  return Buffer.concat([tarHeader("pax", 1_024_000, "x"), Buffer.alloc(1_024_000)]);
}

/** Long names go into a pax header, as usual. */
export function tar(items: Item[]): Buffer {
  const padded = (content: Buffer) => Buffer.concat([content, Buffer.alloc((512 - (content.length % 512)) % 512)]);
  const blocks = items.flatMap(({ name, content = "", type = "0", link = "", mode = 0o644 }) => {
    const bytes = Buffer.from(content as string);
    const long = Buffer.byteLength(name) > 99;
    const body = ` path=${name}\n`;
    let length = Buffer.byteLength(body);
    while (String(length).length + Buffer.byteLength(body) !== length)
      length = String(length).length + Buffer.byteLength(body);
    const pax = Buffer.from(length + body);
    const extended = long ? [tarHeader("pax", pax.length, "x"), padded(pax)] : [];
    return [...extended, tarHeader(long ? "long" : name, bytes.length, type, { link, mode }), padded(bytes)];
  });
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

const { S_IFREG, S_IFLNK, S_IFCHR, S_IFBLK, S_IFDIR, S_IFIFO } = fs.constants;
const typeBits = [S_IFREG, S_IFREG, S_IFLNK, S_IFCHR, S_IFBLK, S_IFDIR, S_IFIFO];

export function zip(items: Item[]): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const item of items) {
    const { local, central } = zipEntry(item, offset);
    parts.push(local);
    directory.push(central);
    offset += local.length;
  }
  return Buffer.concat([...parts, ...directory, zipEnd(items.length, Buffer.concat(directory).length, offset)]);
}

function zipEntry({ name, content = "", type = "0", link, mode = 0o644, claim, crc }: Item, offset: number) {
  const bytes = Buffer.from((link ?? content) as string);
  const raw = zlib.deflateRawSync(bytes);
  const names = Buffer.from(name);
  const common = Buffer.alloc(26);
  common.writeUInt16LE(20, 0);
  common.writeUInt16LE(0x800, 2);
  common.writeUInt16LE(8, 4);
  common.writeUInt32LE(crc ?? crc32(bytes), 10);
  common.writeUInt32LE(raw.length, 14);
  common.writeUInt32LE(claim ?? bytes.length, 18);
  common.writeUInt16LE(names.length, 22);
  const rest = Buffer.alloc(14);
  rest.writeUInt32LE((((typeBits[Number(type)] ?? 0) | mode) << 16) >>> 0, 6);
  rest.writeUInt32LE(offset, 10);
  return {
    local: Buffer.concat([Buffer.from("PK\x03\x04"), common, names, raw]),
    central: Buffer.concat([Buffer.from("PK\x01\x02"), Buffer.from([20, 3]), common, rest, names]),
  };
}

function zipEnd(count: number, size: number, offset: number): Buffer {
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06", "latin1");
  end.writeUInt16LE(count, 8);
  end.writeUInt16LE(count, 10);
  end.writeUInt32LE(size, 12);
  end.writeUInt32LE(offset, 16);
  return end;
}

/** Many directory entries for one file of the archive. */
export function overlappingZip(count: number): Buffer {
  const { local, central } = zipEntry({ name: "000", content: Buffer.alloc(200_000) }, 0);
  const directory = Buffer.concat(Array.from({ length: count }, () => central));
  for (let i = 0; i < count; i++) directory.write(String(i).padStart(3, "0"), (i + 1) * central.length - 3);
  return Buffer.concat([local, directory, zipEnd(count, directory.length, local.length)]);
}

function crc32(bytes: Buffer): number {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return ~crc >>> 0;
}
