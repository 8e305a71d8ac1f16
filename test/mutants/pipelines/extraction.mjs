// Mutants of the extraction pipeline and the git code it shares (pipelines/kit).
export const file = "pipelines/extraction/src/outcomes.ts";
export const killedBy = "pipelines/extraction/test/api/outcomes.test.ts";

export const mutants = [
  {
    name: "two extractions of one project run at once",
    killedBy: "pipelines/extraction/test/api/api.test.ts",
    file: "pipelines/extraction/src/contract.ts",
    old: `key: "projectId",`,
    new: `key: "projectId", keyLimit: 2,`,
  },
  {
    name: "a project that could not be stored leaves a job",
    killedBy: "pipelines/extraction/test/api/api.test.ts",
    file: "pipelines/extraction/src/projects.ts",
    old: "enqueue(extraction, input, { tx })",
    new: "enqueue(extraction, input)",
  },
  {
    name: "a retried old extraction replaces newer dependencies",
    killedBy: "pipelines/extraction/test/extraction/sync.test.ts",
    file: "pipelines/extraction/src/sync.ts",
    old: "if (!superseded) await failIfProjectDeleted",
    new: "await failIfProjectDeleted",
  },
  {
    name: "a retried old extraction replaces newer findings",
    old: "if (!superseded) await replaceResults(",
    new: "await replaceResults(",
  },
  {
    name: "a retried old extraction becomes the one the project shows",
    old: "if (!superseded) {\n    await tx.query(\n      `update extraction.repositories",
    new: "{\n    await tx.query(\n      `update extraction.repositories",
  },
  {
    name: "an extraction that found nothing counts as newer",
    file: "pipelines/extraction/src/project-state.ts",
    old: " and later.summary is not null",
    new: "",
  },
  {
    name: "a late attempt replaces the newest extraction of its project",
    old: "(later.created_at, later.id) > (this.created_at, this.id)\n     )`",
    new: "false\n     )`",
  },
  {
    name: "a late attempt reopens a completed extraction",
    old: "where extractions.status <> 'completed'",
    new: "where true",
  },
  {
    name: "an extraction waits for a project that was deleted",
    file: "pipelines/extraction/src/project-state.ts",
    old: 'code: "PROJECT_GONE", fatal: true',
    new: 'code: "PROJECT_GONE"',
  },
  {
    name: "dependencies that were removed from the repository are still shown",
    killedBy: "pipelines/extraction/test/extraction/sync.test.ts",
    file: "pipelines/extraction/src/sync.ts",
    old: "where project_id = $1 and extraction_id <> $2",
    new: "where project_id = $1 and extraction_id <> $2 and false",
  },
  {
    name: "found secrets remove the code findings",
    old: "project_id = $1 and kind = $3 and extraction_id",
    new: "project_id = $1 and kind in ('code', $3) and extraction_id",
  },
  {
    name: "an advisory source that does not respond removes its findings",
    old: "const listed = exploited?.read.kev ? current : previous;",
    new: "const listed = current;",
  },
  {
    name: "a permanent database error is reported as a lost connection",
    killedBy: "pipelines/extraction/test/extraction/sync.test.ts",
    file: "pipelines/extraction/src/sync.ts",
    old: "if (!isDatabaseError(error)) throw error;",
    new: "",
  },
  {
    name: "attributes of the repository change the content of its files",
    killedBy: "pipelines/extraction/test/clone/hostile.test.ts",
    file: "pipelines/extraction/src/clone/clone.ts",
    old: '"* -filter -text -ident -working-tree-encoding\\n"',
    new: '"\\n"',
  },
  {
    name: "files of git are left in the scratch directory",
    killedBy: "pipelines/extraction/test/clone/clone.test.ts",
    file: "pipelines/extraction/src/clone/clone.ts",
    old: `  } finally {
    await fs.rm(folder, { recursive: true, force: true });`,
    new: "  } finally {",
  },
  {
    name: "files that are fetched again come from the newest commit",
    killedBy: "pipelines/extraction/test/clone/clone.test.ts",
    file: "pipelines/extraction/src/clone/clone.ts",
    edits: [
      {
        old: '"--", url, commit]',
        new: '"--", url, "HEAD"]',
      },
      {
        old: "await checkOut(job, git, paths, source, commit);",
        new: 'await checkOut(job, git, paths, source, (await git.local(["rev-parse", "FETCH_HEAD"])).stdout.trim());',
      },
      {
        old: '"--no-recurse-submodules", "--no-write-fetch-head"]',
        new: '"--no-recurse-submodules"]',
      },
    ],
  },
  {
    name: "a token is created for a mirror",
    killedBy: "pipelines/extraction/test/clone/credentials.test.ts",
    file: "pipelines/extraction/src/clone/credentials.ts",
    old: "if (remote.mirror) return undefined;",
    new: "",
  },
  {
    name: "a token is created for an unencrypted connection",
    killedBy: "pipelines/extraction/test/clone/credentials.test.ts",
    file: "pipelines/extraction/src/clone/credentials.ts",
    old: "&& !remote.confidential)",
    new: "&& false)",
  },
  {
    name: "a mirror receives a token of another host",
    killedBy: "pipelines/kit/test/git.test.ts",
    file: "pipelines/kit/src/git/git.ts",
    old: "mirror || !confidential ? undefined : credential",
    new: "!confidential ? undefined : credential",
  },
  {
    name: "a missing token is reported as expired",
    killedBy: "pipelines/extraction/test/clone/credentials.test.ts",
    file: "pipelines/extraction/src/clone/clone.ts",
    old: "(anonymous ? notFound(cause) : authenticationFailed",
    new: "(false ? notFound(cause) : authenticationFailed",
  },
  {
    name: "a comment hides every secret of its file",
    killedBy: "pipelines/extraction/test/scans/secrets.test.ts",
    file: "pipelines/extraction/src/secrets/secretlint.ts",
    old: '"rules.splice(at, 1);",',
    new: "",
  },
  {
    name: "an ignore list in the repository hides secrets from gitleaks",
    killedBy: "pipelines/extraction/test/scans/secrets.test.ts",
    file: "pipelines/extraction/src/secrets/gitleaks.ts",
    old: "if (!found || found.isDirectory()) return work(renamed);",
    new: "if (true) return work(renamed);",
  },
  {
    name: "an inline comment hides a secret from gitleaks",
    killedBy: "pipelines/extraction/test/scans/secrets.test.ts",
    file: "pipelines/extraction/src/secrets/gitleaks.ts",
    old: '"--ignore-gitleaks-allow", ',
    new: "",
  },
  {
    name: "a project is read with another user's credential",
    killedBy: "pipelines/extraction/test/api/settings.test.ts",
    file: "pipelines/extraction/src/integrations.ts",
    old: "where id = $1 and organization_id = $2 for share",
    new: "where id = $1 and $2::uuid is not null for share",
  },
  {
    name: "another user's credential is replaced",
    killedBy: "pipelines/extraction/test/api/settings.test.ts",
    file: "pipelines/extraction/src/integrations.ts",
    old: "where id = $1 and organization_id = $2 returning",
    new: "where id = $1 and $2::uuid is not null returning",
  },
  {
    name: "a credential in use is removed",
    killedBy: "pipelines/extraction/test/api/settings.test.ts",
    file: "pipelines/extraction/src/integrations.ts",
    old: "if (rows.length > 0) throw inUseRefusal(rows);",
    new: `await tx.query("update extraction.repositories set integration_id = null where integration_id = $1", [id]);
  if (rows.length < 0) throw inUseRefusal(rows);`,
  },
];
