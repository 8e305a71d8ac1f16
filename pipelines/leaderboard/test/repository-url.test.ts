// What people paste: one record for each repository, however it was written, and a sentence for everything that is none.
import { describe, expect, it } from "vitest";
import { REPOSITORY } from "../src/contract.ts";
import { normalise } from "../src/repository-url.ts";

const SITE = { repository: "acme/site", url: "https://github.com/acme/site" };

describe("the same repository", () => {
  it.each([
    "https://github.com/acme/site",
    "http://github.com/acme/site",
    "https://www.github.com/acme/site",
    "https://github.com/acme/site/",
    "https://github.com/acme/site.git",
    "https://github.com/acme/site.git/",
    "https://github.com/acme/site.GIT",
    "https://github.com/acme/site.git.git",
    "HTTPS://GitHub.com/Acme/SITE",
    "https://github.com:443/acme/site",
    "https://github.com//acme//site",
    "git://github.com/acme/site.git",
    "github.com/acme/site",
    "GitHub.com/acme/site/",
    "www.github.com/acme/site.git",
    "acme/site",
    "Acme/Site",
    "acme/site/",
    "acme/site.git",
    "git@github.com:acme/site.git",
    "git@github.com:acme/site",
    "git@github.com:Acme/Site.git/",
    "GIT@GITHUB.COM:acme/site",
    "git@github.com/acme/site.git",
    "ssh://git@github.com/acme/site.git",
    "https://github.com/acme/site/tree/feature/a-branch",
    "https://github.com/acme/site/blob/main/docs/æ ø.md#L12-L20",
    "https://github.com/acme/site/issues/12?q=is%3Aopen#issuecomment-3",
    "https://github.com/acme/site/compare/v1..v2",
    "https://github.com/acme/site/compare/main...next",
    "https://github.com/acme/site?tab=readme-ov-file#site",
    "  https://github.com/acme/site\r\n",
    "\tacme/site\u00a0",
  ])("is written as %j", (text) => {
    expect(normalise(text)).toEqual(SITE);
  });
});

it.each([
  ["a-b/c_d.e-f", "a-b/c_d.e-f"],
  ["acme/.github", "acme/.github"],
  ["acme/site.github.io", "acme/site.github.io"],
  ["acme/...", "acme/..."],
  ["1/2", "1/2"],
  [`${"a".repeat(39)}/${"b".repeat(100)}`, `${"a".repeat(39)}/${"b".repeat(100)}`],
])("%s is a name as GitHub allows it, and its address leads back to it", (text, repository) => {
  const named = normalise(text);
  expect(named).toEqual({ repository, url: `https://github.com/${repository}` });
  expect(normalise(`https://github.com/${repository}`)).toEqual(named);
  expect(repository).toMatch(REPOSITORY);
});

const ELSEWHERE = /^names \S+, and contributors can be looked up at github\.com alone$/;
const NO_NAME = /^does not name a repository: an owner and a name are needed$/;
const NO_ADDRESS = /^is no address of a repository$/;
const CONTROL = /^has control characters in it$/;

describe("refused, with a sentence, is", () => {
  it.each<[what: string, text: string, sentence: RegExp]>([
    ["nothing", "", /^is empty$/],
    ["nothing to be seen", " \n\t ", /^is empty$/],
    ["what is too long", `https://github.com/acme/site/${"x".repeat(400)}`, /^is longer than 400 characters$/],

    ["another host", "https://gitlab.com/acme/site", ELSEWHERE],
    ["another host without a scheme", "gitlab.com/acme/site", ELSEWHERE],
    ["another host by ssh", "git@gitlab.com:acme/site.git", ELSEWHERE],
    ["a host below GitHub's", "https://gist.github.com/acme/0123abcd", ELSEWHERE],
    ["GitHub's API", "https://api.github.com/repos/acme/site", ELSEWHERE],
    ["a host that looks like GitHub's", "https://github.com.example.net/acme/site", ELSEWHERE],
    ["a host that ends like GitHub's", "https://notgithub.com/acme/site", ELSEWHERE],
    ["a host whose o is a zero", "https://github.c0m/acme/site", ELSEWHERE],
    ["this machine", "http://127.0.0.1/acme/site", ELSEWHERE],
    ["a service of the cloud it runs in", "http://169.254.169.254/latest/meta-data", ELSEWHERE],
    ["an address of IPv6", "http://[::1]/acme/site", ELSEWHERE],
    ["a host behind a backslash", "https://example.net\\@github.com/acme/site", ELSEWHERE],

    ["a user in the address", "https://ada@github.com/acme/site", NO_ADDRESS],
    ["a password in the address", "https://ada:s3cret@github.com/acme/site", NO_ADDRESS],
    ["a token in the place of a user", "https://ghp_s3cret:x-oauth-basic@github.com/acme/site", NO_ADDRESS],
    ["a password without a scheme", "git:s3cret@github.com/acme/site", NO_ADDRESS],
    ["a password by ssh", "ssh://git:s3cret@github.com/acme/site", NO_ADDRESS],
    ["another user by ssh", "ssh://ada@github.com/acme/site", NO_ADDRESS],
    ["another user as scp has it", "ada@github.com:acme/site", NO_ADDRESS],
    ["GitHub's name as that of a user", "https://github.com@example.net/acme/site", NO_ADDRESS],
    ["a port", "https://github.com:8443/acme/site", NO_ADDRESS],
    ["a port without a scheme", "github.com:8443/acme/site", NO_ADDRESS],
    ["a port by ssh", "ssh://git@github.com:22/acme/site", NO_NAME],

    ["a step up", "https://github.com/acme/../other/site", NO_ADDRESS],
    ["a step up at the end", "https://github.com/acme/site/other/..", NO_ADDRESS],
    ["a step up that is hidden", "https://github.com/acme/%2e%2E/other/site", NO_ADDRESS],
    ["a step up by ssh", "git@github.com:../acme/site", NO_ADDRESS],
    ["steps up to a file", "../../etc/passwd", NO_ADDRESS],
    ["a name that is a step up", "acme/..", NO_ADDRESS],
    ["an owner that is a step up", "../site", NO_ADDRESS],
    ["a name that is this place", "acme/.", NO_ADDRESS],
    ["a step up once .git is taken away", "acme/...git", NO_NAME],
    ["a name of which .git leaves nothing", "acme/.git", NO_NAME],
    ["a name of which .git leaves a dot", "acme/..git", NO_NAME],

    ["an end of a line within", "https://github.com/ac\nme/site", CONTROL],
    ["a tab within", "https://github.com/acme/\tsite", CONTROL],
    ["a zero byte", "acme/site\u0000", CONTROL],
    ["an escape", "acme/\u001b[31msite", CONTROL],
    ["a control character of the second half", "acme/si\u0085te", CONTROL],

    ["a script", "javascript:alert(1)//github.com/acme/site", NO_ADDRESS],
    ["a file", "file:///github.com/acme/site", NO_ADDRESS],
    ["data", "data:text/plain,github.com/acme/site", NO_ADDRESS],
    ["a helper of git", "ext::sh -c touch% /tmp/x", NO_ADDRESS],
    ["a scheme of git without a host", "git:acme/site", NO_ADDRESS],
    ["what is no address at all", "https://", NO_ADDRESS],

    ["an owner alone", "https://github.com/acme", NO_NAME],
    ["an owner alone, without a scheme", "github.com/acme/", NO_NAME],
    ["an owner alone by ssh", "git@github.com:acme", NO_NAME],
    ["a host alone", "https://github.com/", NO_NAME],
    ["one word", "site", NO_NAME],
    ["a path below a short name", "acme/site/tree/main", NO_NAME],
    ["a path below a name by ssh", "git@github.com:acme/site/tree/main", NO_NAME],
    ["an owner like an option", "-x/y", NO_NAME],
    ["a name like an option", "acme/-site", NO_NAME],
    ["an owner like an option, in an address", "https://github.com/--upload-pack/y", NO_NAME],
    ["an option with a value", "--upload-pack=touch/y", ELSEWHERE],
    ["an owner that is a host", "example.com/site", NO_NAME],
    ["an owner that is too long", `${"a".repeat(40)}/site`, NO_NAME],
    ["a name that is too long", `acme/${"b".repeat(101)}`, NO_NAME],
    ["a slash that is hidden", "https://github.com/acme%2fsite", NO_NAME],
    ["a name with a blank", "https://github.com/acme/my site", NO_NAME],
    ["a name of other letters", "https://github.com/acme/sité", NO_NAME],
    ["a letter that is a small k only when it is made small", "git@github.com:acme/\u212aey", NO_ADDRESS],
    ["a letter of no width", "https://github.com/acme/si\u200bte", NO_NAME],
  ])("%s", (_, text, sentence) => {
    expect(normalise(text)).toEqual({ wrong: expect.stringMatching(sentence) });
  });

  it("said without what was written, which may hold a secret or another page's words", () => {
    const { wrong } = normalise(`https://${"x".repeat(200)}.example/<b>s3cret</b>?token=s3cret`) as { wrong: string };
    expect(wrong).toMatch(/^names x{60}…, and /);
    expect(wrong).not.toContain("s3cret");
  });
});
