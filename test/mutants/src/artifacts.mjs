// Mutants of src/artifacts/verify-content.ts.
export const file = "src/artifacts/verify-content.ts";

export const mutants = [
  {
    name: "the object in the store is accepted without verifying its content",
    killedBy: "test/artifacts/artifact-file.test.ts",
    only: "has other content now",
    old: 'bytes === Number(size) && hash.digest("hex") === sha256',
    new: "bytes === Number(size)",
  },
];
