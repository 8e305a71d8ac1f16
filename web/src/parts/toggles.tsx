// One of several, side by side, for choices that are short and few.
import type { ReactNode } from "react";

export function Toggles<Value extends string>({
  label,
  options,
  value,
  onValue,
}: {
  label: string;
  options: readonly { value: Value; says: ReactNode }[];
  value: Value;
  onValue: (value: Value) => void;
}) {
  return (
    <fieldset className="toggles" aria-label={label}>
      {options.map((one) => (
        <button
          key={one.value}
          type="button"
          aria-pressed={one.value === value}
          onClick={() => one.value !== value && onValue(one.value)}
        >
          {one.says}
        </button>
      ))}
    </fieldset>
  );
}
