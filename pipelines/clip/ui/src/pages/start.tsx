// The form of a new clip, and all clips.
import { useApiQuery } from "@stillwake/ui/api/query.ts";
import { escapeLine, plural } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Pager, useCursor } from "@stillwake/ui/parts/pager.tsx";
import { Empty, Loaded, PageHead, Panel } from "@stillwake/ui/parts/panel.tsx";
import { SampleCard } from "@stillwake/ui/parts/sample-card.tsx";
import { SearchBox } from "@stillwake/ui/parts/search-box.tsx";
import { Toggles } from "@stillwake/ui/parts/toggles.tsx";
import { useState } from "react";
import { useLocation, useSearchParams } from "wouter";
import type { Clip, ClipPage, Me, RequestedClip, Sample, State } from "../../../src/model.ts";
import { isEnded } from "../labels.ts";
import { ClipCard } from "../parts/clip-card.tsx";
import { formatTimecode } from "../timecode.ts";
import { type ClipDraft, NewClip } from "./new-clip.tsx";

const EMPTY: ClipDraft = { source: { kind: "url", url: "" } };

export function StartPage({ me }: { me: Me }) {
  const [, navigate] = useLocation();
  const [params] = useSearchParams();
  const from = params.get("from") ?? "";
  const [sample, setSample] = useState<Sample>();
  const model = useApiQuery<Clip>(`api/clips/${encodeURIComponent(from)}`, { once: true, enabled: from !== "" });
  if (from !== "" && model.isPending) return <p className="soft">Loading…</p>;
  const draft = sample ? sampleDraft(sample) : from !== "" && model.data ? draftOf(model.data) : EMPTY;
  return (
    <>
      <PageHead title="Clips" />
      {me.sample && (
        <SampleCard<RequestedClip> button="Clip the sample" onStarted={({ id }) => navigate(`/clips/${id}`)}>
          <p>
            <span className="untrusted">{escapeLine(me.sample.name)}</span> is included in this server. The clip goes
            from {formatTimecode(me.sample.start)} to {formatTimecode(me.sample.end)} and needs no network.
          </p>
          <Button kind="plain" onClick={() => setSample(me.sample!)}>
            Choose the range yourself
          </Button>
        </SampleCard>
      )}
      <NewClip key={`${from} ${sample?.upload}`} limits={me.limits} draft={draft} />
      <AllClips />
    </>
  );
}

const STATES: readonly { value: State | ""; label: string }[] = [
  { value: "", label: "All" },
  { value: "running", label: "Running" },
  { value: "ready", label: "Ready" },
  { value: "failed", label: "Failed" },
];

function AllClips() {
  const [params, setParams] = useSearchParams();
  const [text, setText] = useState("");
  const state = STATES.find(({ value }) => value === params.get("state"))?.value ?? "";
  const clips = useApiQuery<ClipPage>("api/clips", {
    query: { limit: 24, cursor: useCursor(), state, q: text.trim() },
    once: ({ rows }) => rows.every(isEnded),
  });
  const filter = (change: (params: URLSearchParams) => void) =>
    setParams(
      (before) => {
        const after = new URLSearchParams(before);
        after.delete("cursor");
        change(after);
        return after;
      },
      { replace: true },
    );
  const isFiltered = state !== "" || text.trim() !== "";
  return (
    <Panel title="All clips" bare>
      <div className="filters">
        <Toggles
          label="State"
          options={STATES}
          value={state}
          onChange={(next) => filter((after) => (next === "" ? after.delete("state") : after.set("state", next)))}
        />
        <SearchBox
          label="Search by title"
          onSearch={(query) => {
            setText(query);
            filter(() => {});
          }}
        />
      </div>
      <Loaded query={clips}>
        {({ rows, cursor, total }) =>
          rows.length > 0 ? (
            <>
              <ul className="clip-grid">
                {rows.map((clip) => (
                  <ClipCard key={clip.id} clip={clip} />
                ))}
              </ul>
              <Pager next={cursor} total={plural(total, "clip")} />
            </>
          ) : isFiltered ? (
            <Empty title="No clips match the filters" />
          ) : (
            <Empty title="No clips yet">
              <p>Paste a URL or drop a file above. You can follow the clip while it is made.</p>
            </Empty>
          )
        }
      </Loaded>
    </Panel>
  );
}

function sampleDraft({ upload, name, start, end }: Sample): ClipDraft {
  return { source: { kind: "stored", upload, name }, start, end };
}

function draftOf({ source, start, end, captions, format, cut, title }: Clip): ClipDraft {
  return {
    source:
      source.kind === "url"
        ? { kind: "url", url: source.url }
        : { kind: "stored", upload: source.upload, name: source.name },
    start,
    end,
    captions,
    format,
    cut,
    // The server's default is not repeated.
    ...(title !== source.name && { title }),
  };
}
