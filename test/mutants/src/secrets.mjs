// Mutants of src/secrets/seal.ts.
export const file = "src/secrets/seal.ts";
export const killedBy = "test/security/sealed.test.ts";

export const mutants = [
  {
    name: "a value sealed for one job opens in another",
    old: '["j", job, tenant, at]',
    new: '["j", tenant, at]',
  },
  {
    name: "a value sealed for one tenant opens for another",
    old: '["j", job, tenant, at]',
    new: '["j", job, at]',
  },
  {
    name: "a value sealed for one field opens in another",
    old: '["j", job, tenant, at]',
    new: '["j", job, tenant]',
  },
  {
    name: "an object key may contain a sealed value",
    old: "for (const label of labels) if (label !== null) rejectLabel(label, value, at);",
    new: "",
  },
];
