// Mutants of the extraction: what stands of a project when its extractions do not come one after the other, what is told as trouble, and what a stranger's repository may do.

const ENDS = "pipelines/extraction/test/api/outcomes.test.ts";
const ACCESS = "pipelines/extraction/test/api/settings.test.ts";
const API = "pipelines/extraction/test/api/api.test.ts";
const SYNC = "pipelines/extraction/test/extraction/sync.test.ts";
const HOSTILE = "pipelines/extraction/test/clone/hostile.test.ts";
const CLONE = "pipelines/extraction/test/clone/clone.test.ts";
const CREDENTIALS = "pipelines/extraction/test/clone/credentials.test.ts";
const SECRETS = "pipelines/extraction/test/scans/secrets.test.ts";
const inFile = (file) => (old, text) => ({ file: `pipelines/extraction/${file}`, old, new: text });
const integrations = inFile("src/integrations.ts");
const standing = inFile("src/project-state.ts");
const ends = inFile("src/outcomes.ts");
const sync = inFile("src/sync.ts");
const clone = inFile("src/clone/clone.ts");
const credentials = inFile("src/clone/credentials.ts");
const gitleaks = inFile("src/secrets/gitleaks.ts");

/** @type {{ name: string, killedBy: string, only?: string, edits: { file: string, old: string, new: string }[] }[]} */
export const extractionMutants = [
  {
    name: "extraction: two of one project are under way at once",
    killedBy: API,
    edits: [
      inFile("src/contract.ts")("key: (given) => given.projectId,", "key: (given) => given.projectId, keyLimit: 2,"),
    ],
  },
  {
    name: "extraction: a job is left of a project that could not be stored",
    killedBy: API,
    edits: [inFile("src/projects.ts")("enqueue(extraction, input, { tx })", "enqueue(extraction, input)")],
  },
  {
    name: "extraction: an old one that is retried replaces a later one's dependencies",
    killedBy: SYNC,
    edits: [sync("if (!superseded) await unlessGone", "await unlessGone")],
  },
  {
    name: "extraction: an old one that is retried replaces a later one's findings",
    killedBy: ENDS,
    edits: [ends("if (!superseded) await replace(", "await replace(")],
  },
  {
    name: "extraction: an old one that is retried is the one the project shows",
    killedBy: ENDS,
    edits: [
      ends(
        "if (!superseded) {\n    await tx.query(\n      `update extraction.repositories",
        "{\n    await tx.query(\n      `update extraction.repositories",
      ),
    ],
  },
  {
    name: "extraction: one that found nothing counts as later",
    killedBy: ENDS,
    edits: [standing(" and later.summary is not null", "")],
  },
  {
    name: "extraction: an attempt that begins late takes the newest one's place",
    killedBy: ENDS,
    edits: [ends("(later.created_at, later.id) > (this.created_at, this.id)\n     )`", "false\n     )`")],
  },
  {
    name: "extraction: an attempt that begins late opens a completed one again",
    killedBy: ENDS,
    edits: [ends("where extractions.status <> 'completed'", "where true")],
  },
  {
    name: "extraction: a project that is gone is waited for",
    killedBy: ENDS,
    edits: [standing('code: "PROJECT_GONE", fatal: true', 'code: "PROJECT_GONE"')],
  },
  {
    name: "extraction: what a repository no longer has is still shown",
    killedBy: SYNC,
    edits: [
      sync("where project_id = $1 and extraction_id <> $2", "where project_id = $1 and extraction_id <> $2 and false"),
    ],
  },
  {
    name: "extraction: secrets that were found take the code's findings away",
    killedBy: ENDS,
    edits: [
      ends(
        "project_id = $1 and kind = $3 and extraction_id",
        "project_id = $1 and kind in ('code', $3) and extraction_id",
      ),
    ],
  },
  {
    name: "extraction: a feed that does not answer takes away what it said",
    killedBy: ENDS,
    edits: [ends("const listed = exploited?.read.kev ? said : before;", "const listed = said;")],
  },
  {
    name: "extraction: what the database refuses for good is called a broken connection",
    killedBy: SYNC,
    edits: [sync("if (!isTrouble(error)) throw error;", "")],
  },
  {
    name: "extraction: attributes of the repository decide what its files are",
    killedBy: HOSTILE,
    edits: [clone('"* -filter -text -ident -working-tree-encoding\\n"', '"\\n"')],
  },
  {
    name: "extraction: what git needed is left in the scratch directory",
    killedBy: CLONE,
    edits: [clone("  } finally {\n    await fs.rm(folder, { recursive: true, force: true });", "  } finally {")],
  },
  {
    name: "extraction: files that are fetched again are of whatever is newest",
    killedBy: CLONE,
    edits: [
      clone('"--", url, commit]', '"--", url, "HEAD"]'),
      clone(
        "await checkOut(job, git, places, source, commit);",
        'await checkOut(job, git, places, source, (await git.local(["rev-parse", "FETCH_HEAD"])).stdout.trim());',
      ),
      clone('"--no-recurse-submodules", "--no-write-fetch-head"]', '"--no-recurse-submodules"]'),
    ],
  },
  {
    name: "extraction: a token is made for a mirror",
    killedBy: CREDENTIALS,
    edits: [credentials("if (remote.mirror) return undefined;", "")],
  },
  {
    name: "extraction: a token is made for a line that others can read",
    killedBy: CREDENTIALS,
    edits: [credentials("&& !remote.confidential)", "&& false)")],
  },
  {
    name: "extraction: a mirror is sent the token it is not meant for",
    killedBy: "pipelines/kit/test/git.test.ts",
    edits: [
      {
        file: "pipelines/kit/src/git/git.ts",
        old: "mirror || !confidential ? undefined : credential",
        new: "!confidential ? undefined : credential",
      },
    ],
  },
  {
    name: "extraction: who has no token is told to renew it",
    killedBy: CREDENTIALS,
    edits: [
      inFile("src/clone/refusals.ts")(
        "(anonymous ? notFound(cause) : reconnect",
        "(false ? notFound(cause) : reconnect",
      ),
    ],
  },
  {
    name: "extraction: a comment hides every secret of its file",
    killedBy: SECRETS,
    edits: [inFile("src/secrets/secretlint.ts")('"rules.splice(at, 1);",', "")],
  },
  {
    name: "extraction: a list of the repository hides its secrets from gitleaks",
    killedBy: SECRETS,
    edits: [gitleaks("if (!found || found.isDirectory()) return work(called);", "if (true) return work(called);")],
  },
  {
    name: "extraction: a mark hides a secret from gitleaks",
    killedBy: SECRETS,
    edits: [gitleaks('"--ignore-gitleaks-allow", ', "")],
  },
  {
    name: "extraction: a project is read with somebody else's credential",
    killedBy: ACCESS,
    edits: [
      integrations(
        "where id = $1 and organization_id = $2 for share",
        "where id = $1 and $2::uuid is not null for share",
      ),
    ],
  },
  {
    name: "extraction: somebody else's credential is replaced",
    killedBy: ACCESS,
    edits: [
      integrations(
        "where id = $1 and organization_id = $2 returning",
        "where id = $1 and $2::uuid is not null returning",
      ),
    ],
  },
  {
    name: "extraction: a credential is removed though projects use it",
    killedBy: ACCESS,
    edits: [
      integrations(
        "if (rows.length > 0) throw inUse(rows);",
        'await tx.query("update extraction.repositories set integration_id = null where integration_id = $1", [id]);\n  if (rows.length < 0) throw inUse(rows);',
      ),
    ],
  },
];
