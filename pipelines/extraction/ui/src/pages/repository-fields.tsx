// The fields of a repository that the forms for adding and for changing it share.
import type { RequestError } from "@stillwake/ui/api/request.ts";
import { Field, fieldError, TextInput } from "@stillwake/ui/parts/form.tsx";

export interface RepositoryValues {
  repository: string;
  branch: string;
  packagePath: string;
}

/** `wholeRepository`: the package path that means the whole repository, as text. */
export function RepositoryFields({
  values: { repository, branch, packagePath },
  onValue,
  wholeRepository,
  error,
}: {
  values: RepositoryValues;
  onValue: (name: keyof RepositoryValues) => (value: string) => void;
  wholeRepository: string;
  error: RequestError | undefined;
}) {
  return (
    <>
      <Field name="repository" label="Full name" help="For example acme/site." error={fieldError(error, "repository")}>
        {(props) => <TextInput {...props} value={repository} onValue={onValue("repository")} required />}
      </Field>
      <Field name="branch" label="Branch" help="Empty: the default branch." error={fieldError(error, "branch")}>
        {(props) => <TextInput {...props} value={branch} onValue={onValue("branch")} />}
      </Field>
      <Field
        name="packagePath"
        label="Package path"
        help={`The folder with the manifest. ${wholeRepository}: the whole repository.`}
        error={fieldError(error, "packagePath")}
      >
        {(props) => <TextInput {...props} value={packagePath} onValue={onValue("packagePath")} />}
      </Field>
    </>
  );
}
