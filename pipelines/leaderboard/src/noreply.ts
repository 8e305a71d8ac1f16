// Addresses that GitHub gives to people who show none of their own. They name the user: nobody has to be asked.
//
//   ada@users.noreply.github.com              until 2017
//   1234567+ada@users.noreply.github.com      since
//   49699333+dependabot[bot]@users.noreply.github.com

const NOREPLY = /^(?:\d{1,15}\+)?([a-z\d](?:[a-z\d_-]{0,99})(?:\[bot\])?)@users\.noreply\.github\.com$/;

/** The login; undefined for every other address. The number is not believed: anybody can write one. */
export function namedBy(email: string): string | undefined {
  return NOREPLY.exec(email.toLowerCase())?.[1];
}
