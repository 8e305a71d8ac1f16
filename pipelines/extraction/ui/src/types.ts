// The types of the API's responses.
import type { JsonOf, Page } from "@stillwake/ui/api/json.ts";
import type { Integration as StoredIntegration } from "../../src/integrations.ts";
import type { Extraction as StoredExtraction, Project as StoredProject } from "../../src/projects.ts";
import type { Costs as StoredCosts, ExtractionDetail as StoredDetail } from "../../src/web/detail.ts";
import type { ListedDependency, ListedFinding, ListedVulnerability } from "../../src/web/lists.ts";
import type { ListedReport } from "../../src/web/reports.ts";

export type { Page };
export type Project = JsonOf<StoredProject>;
export type Extraction = JsonOf<StoredExtraction>;
export type ExtractionDetail = JsonOf<StoredDetail>;
export type Dependency = JsonOf<ListedDependency>;
export type Vulnerability = JsonOf<ListedVulnerability>;
export type Finding = JsonOf<ListedFinding>;
export type Report = JsonOf<ListedReport>;
export type Costs = JsonOf<StoredCosts>;
export type Integration = JsonOf<StoredIntegration>;

export const PROVIDERS = { github: "GitHub", gitlab: "GitLab", bitbucket: "Bitbucket" } as const;
