// What the API answers, as the page has it.
import type { Told } from "@stillwake/kit/ui/ask.ts";
import type { Integration } from "../../src/integrations.ts";
import type { Extraction, Project } from "../../src/projects.ts";
import type { Costs, ExtractionDetail } from "../../src/web/detail.ts";
import type { ListedDependency, ListedFinding, ListedVulnerability } from "../../src/web/lists.ts";
import type { ListedReport } from "../../src/web/reports.ts";

export type OneProject = Told<Project>;
export type OneExtraction = Told<Extraction>;
export type Detail = Told<ExtractionDetail>;
export type OneDependency = Told<ListedDependency>;
export type OneVulnerability = Told<ListedVulnerability>;
export type OneFinding = Told<ListedFinding>;
export type OneReport = Told<ListedReport>;
export type AllCosts = Told<Costs>;
export type OneIntegration = Told<Integration>;
/** What GET integrations answers. */
export interface Integrations {
  integrations: OneIntegration[];
}

export const PROVIDERS = { github: "GitHub", gitlab: "GitLab", bitbucket: "Bitbucket" } as const;
