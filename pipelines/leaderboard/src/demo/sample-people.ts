// Invented authors of the sample repository. Their addresses use reserved domains, and their logins a common suffix.
import type { SampleUser } from "./github-server.ts";

export interface Author {
  name: string;
  /** The current address, then an old one that .mailmap maps to it. */
  emails: [string, string?];
  zone: string;
}

/**
 * found: GitHub finds the public address. moved: also has an old address that only .mailmap knows. hidden: a noreply address
 * with the user's number; old hidden: without it. unknown: not on GitHub. empty: no address.
 */
type Kind = "found" | "moved" | "hidden" | "old hidden" | "unknown" | "empty";

/** Sorted by number of commits, most first. */
const PEOPLE: [name: string, handle: string, kind: Kind, zone: string][] = [
  ["Henrike Åslund", "henrike", "moved", "+0100"],
  ["Tomasz Wróblewicz", "twroblewicz", "found", "+0100"],
  ["Ifeoma Adeyinka-Cole", "ifeoma-ac", "hidden", "+0100"],
  ["佐伯 陽菜", "saeki-hina", "found", "+0900"],
  ["Marisol Echeverría Pons", "marisol-ep", "moved", "-0300"],
  ["Duncan Farquharson-Bell", "dfbell", "found", "+0000"],
  ["Λυδία Καραμπέτσου", "lydia-k", "hidden", "+0200"],
  ["Nguyễn Thảo Vy", "thaovy-n", "found", "+0700"],
  ["Bram van Oosterwijck", "bramvo", "unknown", "+0100"],
  ["Олеся Гринчишин", "olesia-h", "found", "+0200"],
  ["Ruairí Ó Maolagáin", "ruairi-om", "old hidden", "+0000"],
  ["Sunniva Tveitåsen", "sunnivat", "found", "+0100"],
  ["Aurelio Brancaleoni", "aurelio-b", "moved", "+0100"],
  ["अनन्या देशमुख", "ananya-d", "found", "+0530"],
  ["Joséphine Quillerou", "jquillerou", "found", "+0100"],
  ["Kwabena Ofori-Mensah", "kwabena-om", "unknown", "+0000"],
  ["윤서 백", "baek-yunseo", "hidden", "+0900"],
  ["Ágnes Hollóssy", "agnes-h", "found", "+0100"],
  ["Leif-Erik Sandström", "lesandstrom", "found", "+0200"],
  ["ליאור בן־שמחון", "lior-bs", "unknown", "+0200"],
  ["Catarina Vasconcelos Leitão", "catarina-vl", "moved", "+0000"],
  ["Žofie Hrubešová", "zofie-hr", "found", "+0100"],
  ["Mikko Yli-Hietanen", "mikko-yh", "hidden", "+0200"],
  ["林 靖雯", "lin-jingwen", "found", "+0800"],
  ["Thandeka Mabuza", "thandeka-m", "found", "+0200"],
  ["Gwenllian Prydderch", "gwenllian-p", "unknown", "+0000"],
  ["Dragoș Ciobanescu", "dragos-cb", "found", "+0200"],
  ["Elif Karadağlıoğlu", "elif-kd", "old hidden", "+0300"],
  ["Saoirse Mac Giolla", "saoirse-mg", "found", "+0000"],
  ["ნინო ქავთარაძე", "nino-kv", "unknown", "+0400"],
  ["Matthias Überschär", "mueberschaer", "found", "+0100"],
  ["Inés Goicoechea", "ines-gc", "found", "+0100"],
  ["رنا الحدّاد", "rana-hd", "hidden", "+0200"],
  ["Oddný Steingrímsdóttir", "oddny-st", "found", "+0000"],
  ["Pavlína Štěrbová", "pavlina-sb", "unknown", "+0100"],
  ["Jean-Baptiste Kouyaté", "jbkouyate", "found", "+0000"],
  ["Rūta Vaičekauskaitė", "ruta-vk", "moved", "+0200"],
  ["Callum Strathearn", "cstrathearn", "found", "+1000"],
  ["ปิยะดา วงศ์ไพศาล", "piyada-w", "unknown", "+0700"],
  ["Noor van den Eynde", "noorvde", "found", "+0100"],
  ["Ismaël Benhaddou", "ismael-bh", "old hidden", "+0100"],
  ["Mele Taufa'ahau", "mele-tf", "found", "+1300"],
  ["Kristiāns Ozoliņš-Bērziņš", "kristians-ob", "unknown", "+0200"],
  ["Amélie Desrochers", "amelie-dr", "found", "-0500"],
  ["Святослав Прилуцький", "svp", "hidden", "+0200"],
  ["Tuğba Erdemoğlu", "tugba-e", "found", "+0300"],
  ["Wambui Njoroge-Hall", "wambui-nh", "unknown", "+0300"],
  ["Jarosław Kędzierzawski", "jarek-kd", "found", "+0100"],
  ["高橋 奏太", "takahashi-sota", "old hidden", "+0900"],
  ["Eilidh MacCorquodale", "eilidh-mc", "found", "+0000"],
  ["Beñat Arrizabalaga", "benat-ar", "unknown", "+0100"],
  ["Solveig Nørregård-Holm", "solveig-nh", "found", "+0100"],
  ["Đorđe Milovanović", "djordje-ml", "moved", "+0100"],
  ["Hauʻoli Keawe", "hauoli-k", "unknown", "-1000"],
  ["Valentina Ibargüen", "vale-ib", "found", "-0500"],
  ["Benedikt Großkopf", "bgrosskopf", "found", "+0100"],
  ["ምሕረት ገብረ", "mihret-g", "unknown", "+0300"],
  ["Philippa Thornbury-Shaw", "pippa-ts", "hidden", "+0000"],
  ["Renske Hoogeboom", "renske-hb", "unknown", "+0100"],
  ["lighthouse import", "import", "empty", "+0000"],
];

const FIRST_ID = 910_000_017;

const rows = PEOPLE.map(([name, handle, kind, zone], index) => {
  const login = `${handle}-lh`;
  const id = FIRST_ID + index * 7919;
  const emails: Record<Kind, Author["emails"]> = {
    found: [`${handle}@example.com`],
    moved: [`${handle}@example.com`, `${handle}@old-mail.example.net`],
    hidden: [`${id}+${login}@users.noreply.github.com`],
    "old hidden": [`${login}@users.noreply.github.com`],
    unknown: [`${handle}@example.org`],
    empty: [""],
  };
  return { name, login, id, kind, zone, emails: emails[kind] };
});

export const AUTHORS: readonly Author[] = rows.map(({ name, emails, zone }) => ({ name, emails, zone }));

/** Users that the fake GitHub knows. */
export const SAMPLE_USERS: readonly SampleUser[] = rows
  .filter(({ kind }) => kind !== "unknown" && kind !== "empty")
  .map(({ login, id, name, kind, emails }) => ({ login, id, name, email: kind.includes("hidden") ? null : emails[0] }));
