// Where the database is reached, as far as that tells which database it is. The address of one's own machine tells nothing: every copy has it.

export function databaseAddress(url: string | undefined): string | null {
  if (url === undefined || !URL.canParse(url)) return null;
  const { hostname, port, pathname } = new URL(url);
  if (hostname === "" || isOwn(hostname)) return null;
  return `${hostname.toLowerCase()}:${port || 5432}${pathname}`;
}

function isOwn(host: string): boolean {
  return (
    host === "localhost" || host === "[::1]" || /^127\./.test(host) || host.startsWith("%2F") || host.startsWith("/")
  );
}
