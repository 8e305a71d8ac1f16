// Addresses that GitHub gives to people who show none of their own. They name the user: nobody has to be asked.
//
//   ada@users.noreply.github.com              until 2017
//   1234567+ada@users.noreply.github.com      since: the number stays when the name is changed
//   49699333+dependabot[bot]@users.noreply.github.com

export interface Named {
  login: string;
  githubId: number | undefined;
}

const NOREPLY = /^(?:(\d{1,15})\+)?([a-z\d](?:[a-z\d_-]{0,99})(?:\[bot\])?)@users\.noreply\.github\.com$/;

/** Undefined for every other address. */
export function namedBy(email: string): Named | undefined {
  const [, id, login] = NOREPLY.exec(email.toLowerCase()) ?? [];
  return login === undefined ? undefined : { login, githubId: id === undefined ? undefined : Number(id) };
}
