// What leaves the page: text to the clipboard, text and downloads to files.
import { make } from "./dom.ts";

/** False when the page may not. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages without TLS have no clipboard but this old one.
    const field = make("textarea", { readonly: true, "aria-hidden": "true" });
    field.value = text;
    field.style.position = "fixed";
    field.style.opacity = "0";
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }
}

export function saveText(name: string, text: string): void {
  saveFile(name, new Blob([text], { type: "text/plain;charset=utf-8" }));
}

export function saveFile(name: string, file: Blob): void {
  const address = URL.createObjectURL(file);
  const link = make("a", { href: address, download: name.split("/").at(-1) || "file" });
  link.click();
  // The browser has taken hold of it by then.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
