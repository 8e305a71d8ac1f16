// Creates the sample repository from the files in sample/repository. The same files give the same commit.
import fs from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { commitFolder } from "@stillwake/kit/demo/git-server";
import type { Provider } from "../contract.ts";

export interface Sample {
  name: string;
  provider: Provider;
  repository: string;
  branch: string;
}

export const SAMPLE: Sample = {
  name: "Sample repository",
  provider: "github",
  repository: "stillwake-sample/harbour",
  branch: "main",
};

/** Folder with the sample repository, advisories and feeds. */
export const SAMPLES = fileURLToPath(new URL("../../sample", import.meta.url));

/** Creates the bare repository `<root>/stillwake-sample/harbour.git`. Throws ENOENT if git is not installed. */
export async function makeSampleRepository({ root, toolPath }: { root: string; toolPath: string }): Promise<void> {
  const work = path.join(root, "sample-files");
  await fs.rm(work, { recursive: true, force: true });
  await fs.cp(path.join(SAMPLES, "repository"), work, { recursive: true });
  await plantSecret(work);
  await commitFolder(work, path.join(root, `${SAMPLE.repository}.git`), toolPath);
  await fs.rm(work, { recursive: true, force: true });
}

/** An invalid key for the secret scan, assembled here so that scanners do not report it in this project. */
async function plantSecret(work: string): Promise<void> {
  const key = ["AKIA", "Q3EGRZ7BW6YSTJ2K"].join("");
  const secret = ["wT8kPz5vRq1mXc9L", "hB3nD6sF0gJ2yA4eKuOi7Qx"].join("/");
  await fs.writeFile(path.join(work, "deploy.env"), `AWS_ACCESS_KEY_ID=${key}\nAWS_SECRET_ACCESS_KEY=${secret}\n`);
}
