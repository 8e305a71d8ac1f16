// Parsing of repository URLs: one canonical URL per repository, and a message for everything else.
import { describe, expect, it } from "vitest";
import { REPOSITORY } from "../src/contract.ts";
import { parseRepositoryUrl } from "../src/repository-url.ts";

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
    expect(parseRepositoryUrl(text)).toEqual(SITE);
  });
});

it.each([
  ["a-b/c_d.e-f", "a-b/c_d.e-f"],
  ["acme/.github", "acme/.github"],
  ["acme/site.github.io", "acme/site.github.io"],
  ["acme/...", "acme/..."],
  ["1/2", "1/2"],
  [`${"a".repeat(39)}/${"b".repeat(100)}`, `${"a".repeat(39)}/${"b".repeat(100)}`],
])("%s is a valid GitHub name, and parsing its URL gives it back", (text, repository) => {
  const name = parseRepositoryUrl(text);
  expect(name).toEqual({ repository, url: `https://github.com/${repository}` });
  expect(parseRepositoryUrl(`https://github.com/${repository}`)).toEqual(name);
  expect(repository).toMatch(REPOSITORY);
});

const ELSEWHERE = /^is a URL of \S+, but only repositories of github\.com are supported$/;
const NO_NAME = /^must contain an owner and a repository name$/;
const INVALID = /^is not a repository URL$/;
const CONTROL = /^contains control characters$/;

describe("refuses", () => {
  it.each<[what: string, text: string, message: RegExp]>([
    ["an empty string", "", /^is empty$/],
    ["white space", " \n\t ", /^is empty$/],
    ["a text that is too long", `https://github.com/acme/site/${"x".repeat(400)}`, /^is longer than 400 characters$/],

    ["another host", "https://gitlab.com/acme/site", ELSEWHERE],
    ["another host without a scheme", "gitlab.com/acme/site", ELSEWHERE],
    ["another host by ssh", "git@gitlab.com:acme/site.git", ELSEWHERE],
    ["a host below GitHub's", "https://gist.github.com/acme/0123abcd", ELSEWHERE],
    ["GitHub's API", "https://api.github.com/repos/acme/site", ELSEWHERE],
    ["a host that looks like GitHub's", "https://github.com.example.net/acme/site", ELSEWHERE],
    ["a host that ends like GitHub's", "https://notgithub.com/acme/site", ELSEWHERE],
    ["a host with a zero instead of an o", "https://github.c0m/acme/site", ELSEWHERE],
    ["a loopback address", "http://127.0.0.1/acme/site", ELSEWHERE],
    ["the metadata service of a cloud", "http://169.254.169.254/latest/meta-data", ELSEWHERE],
    ["an address of IPv6", "http://[::1]/acme/site", ELSEWHERE],
    ["a host behind a backslash", "https://example.net\\@github.com/acme/site", ELSEWHERE],

    ["a user in the URL", "https://ada@github.com/acme/site", INVALID],
    ["a password in the URL", "https://ada:s3cret@github.com/acme/site", INVALID],
    ["a token as the user", "https://ghp_s3cret:x-oauth-basic@github.com/acme/site", INVALID],
    ["a password without a scheme", "git:s3cret@github.com/acme/site", INVALID],
    ["a password by ssh", "ssh://git:s3cret@github.com/acme/site", INVALID],
    ["another user by ssh", "ssh://ada@github.com/acme/site", INVALID],
    ["another user in scp form", "ada@github.com:acme/site", INVALID],
    ["GitHub's host as the user", "https://github.com@example.net/acme/site", INVALID],
    ["a port", "https://github.com:8443/acme/site", INVALID],
    ["a port without a scheme", "github.com:8443/acme/site", INVALID],
    ["a port by ssh", "ssh://git@github.com:22/acme/site", NO_NAME],

    ["a .. segment", "https://github.com/acme/../other/site", INVALID],
    ["a .. segment at the end", "https://github.com/acme/site/other/..", INVALID],
    ["an escaped .. segment", "https://github.com/acme/%2e%2E/other/site", INVALID],
    ["a .. segment by ssh", "git@github.com:../acme/site", INVALID],
    ["a relative path to a file", "../../etc/passwd", INVALID],
    ["the name ..", "acme/..", INVALID],
    ["the owner ..", "../site", INVALID],
    ["the name .", "acme/.", INVALID],
    ["a name that is .. without .git", "acme/...git", NO_NAME],
    ["a name that is empty without .git", "acme/.git", NO_NAME],
    ["a name that is a dot without .git", "acme/..git", NO_NAME],

    ["a line feed", "https://github.com/ac\nme/site", CONTROL],
    ["a tab", "https://github.com/acme/\tsite", CONTROL],
    ["a zero byte", "acme/site\u0000", CONTROL],
    ["an escape", "acme/\u001b[31msite", CONTROL],
    ["a C1 control character", "acme/si\u0085te", CONTROL],

    ["a script", "javascript:alert(1)//github.com/acme/site", INVALID],
    ["a file", "file:///github.com/acme/site", INVALID],
    ["data", "data:text/plain,github.com/acme/site", INVALID],
    ["a git remote helper", "ext::sh -c touch% /tmp/x", INVALID],
    ["a scheme of git without a host", "git:acme/site", INVALID],
    ["a scheme without a host", "https://", INVALID],

    ["an owner alone", "https://github.com/acme", NO_NAME],
    ["an owner alone, without a scheme", "github.com/acme/", NO_NAME],
    ["an owner alone by ssh", "git@github.com:acme", NO_NAME],
    ["a host alone", "https://github.com/", NO_NAME],
    ["one word", "site", NO_NAME],
    ["a path below a short name", "acme/site/tree/main", NO_NAME],
    ["a path below a name by ssh", "git@github.com:acme/site/tree/main", NO_NAME],
    ["an owner like an option", "-x/y", NO_NAME],
    ["a name like an option", "acme/-site", NO_NAME],
    ["an owner like an option, in a URL", "https://github.com/--upload-pack/y", NO_NAME],
    ["an option with a value", "--upload-pack=touch/y", ELSEWHERE],
    ["an owner that is a host", "example.com/site", NO_NAME],
    ["an owner that is too long", `${"a".repeat(40)}/site`, NO_NAME],
    ["a name that is too long", `acme/${"b".repeat(101)}`, NO_NAME],
    ["an escaped slash", "https://github.com/acme%2fsite", NO_NAME],
    ["a name with a space", "https://github.com/acme/my site", NO_NAME],
    ["a name with non-ASCII letters", "https://github.com/acme/sité", NO_NAME],
    ["the Kelvin sign, whose lower case is k", "git@github.com:acme/\u212aey", INVALID],
    ["a zero-width character", "https://github.com/acme/si\u200bte", NO_NAME],
  ])("%s", (_, text, message) => {
    expect(parseRepositoryUrl(text)).toEqual({ problem: expect.stringMatching(message) });
  });

  it("without quoting the input, which may contain a secret or markup", () => {
    const { problem } = parseRepositoryUrl(`https://${"x".repeat(200)}.example/<b>s3cret</b>?token=s3cret`) as {
      problem: string;
    };
    expect(problem).toMatch(/^is a URL of x{60}…, but /);
    expect(problem).not.toContain("s3cret");
  });
});
