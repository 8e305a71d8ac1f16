// The page in a browser. Jobs are run by the test, so that it can stop at any moment; made.test.ts runs the pipeline.
import fs from "node:fs";
import path from "node:path";
import { Fatal } from "stillwake";
import { createWorker, implement, type JobContext } from "stillwake/worker";
import { beforeAll, expect, it, onTestFinished } from "vitest";
import { deferred } from "../../../../test/support/deferred.ts";
import {
  describeInBrowser,
  type Size,
  type Theme,
  useBrowser,
  type Visit,
  waitUntilLoaded,
} from "../../../../test/support/server/browser.ts";
import { pageChecks } from "../../../kit/test/support/page-checks.ts";
import { clip, type Output } from "../../src/contract.ts";
import { SAMPLE, SAMPLE_FILE } from "../../src/demo/start.ts";
import type { NewClipBody } from "../../src/model.ts";
import { readSettings } from "../../src/settings.ts";
import { openSources } from "../../src/stages/sources.ts";
import { importFile } from "../../src/uploads.ts";
import { setUpClips } from "../support/clips.ts";

const setup = await setUpClips({ env: { CLIP_SOURCE_MB: "1" }, app: { base: "/clip/", sample: SAMPLE } });
const { pool, origin } = setup;
const browser = useBrowser();
const { expectGoodPage, takeScreenshot } = pageChecks("clip");
const VIDEO = { url: "https://media.example.com/talk.mp4" };

async function visit(place: string, size: Size = "desktop", theme: Theme = "dark"): Promise<Visit> {
  const opened = await browser.visit({ origin, size, theme });
  await opened.goto(`/clip/${place}`);
  return opened;
}

/** Runs jobs by this function until the end of the test. */
async function runJobs(code: (job: JobContext) => Promise<Output>): Promise<void> {
  const pipelines = [implement(clip, code)];
  const worker = createWorker({
    url: setup.url,
    pool: "clip",
    pipelines,
    slots: 1,
    grace: "100ms",
    store: setup.store,
  });
  onTestFinished(() => worker.stop());
  await worker.start();
}

const request = (body: Partial<NewClipBody> = {}) =>
  setup.request({ source: VIDEO, start: 5, end: 15, fresh: true, ...body });
const beginStage = (job: JobContext, stage: string) => pool.query("select clip.begin_stage($1, $2)", [job.id, stage]);
const line = ({ page }: Visit, text: string | RegExp) => page.locator(".line .message").getByText(text).first();
/** An expression about the video of the page. */
const video = ({ page }: Visit, expression: string) =>
  page.evaluate(`(() => { const video = document.querySelector("video"); return ${expression}; })()`);
const idOf = ({ page }: Visit) => new URL(page.url()).pathname.split("/").at(-1)!;

const VTT = "WEBVTT\n\n00:00.000 --> 00:02.000\nThe first line\n\n00:02.000 --> 00:09.000\nThe <b>second</b> line\n";
/** A pixel, which is enough for a thumbnail. */
const PICTURE = Buffer.from(
  "/9j/4AAQSkZJRgABAQEASABIAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////////////wgALCAABAAEBAREA/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBAQABPxA=",
  "base64",
);

/** Stores the sample as the finished clip. */
async function complete(
  job: JobContext,
  captions: Output["captions"] = "none",
  warnings: string[] = [],
): Promise<Output> {
  const { size, sha256 } = await job.artifact("clip.mp4", () => fs.readFileSync(SAMPLE_FILE));
  if (captions !== "none") {
    await job.artifact("captions.vtt", () => VTT);
    await job.artifact("captions.srt", () => "1\n00:00:00,000 --> 00:00:02,000\nThe first line\n");
  }
  await job.artifact("thumbnail.jpg", () => PICTURE);
  const picture = { duration: SAMPLE.duration, width: 640, height: 360, hasAudio: true, encoded: true };
  const result = { file: "clip.mp4", size, sha256, captions, ...picture };
  await pool.query("select clip.complete($1, $2, $3)", [job.id, JSON.stringify(result), warnings]);
  return result;
}

describeInBrowser("the page", () => {
  beforeAll(async () => {
    const sources = openSources(readSettings(setup.env).sources);
    await importFile({ pool, sources }, SAMPLE_FILE, SAMPLE.upload);
  });

  it("chooses the range of a file with handles, keys, the player and typed times", async () => {
    const opened = await visit("");
    const { page } = opened;
    await page.getByText("No clips yet").waitFor();
    await expectGoodPage(opened, "empty");
    await page.getByLabel("Choose a file").setInputFiles(SAMPLE_FILE);
    await page.getByText(/kB, uploaded$/).waitFor();
    const start = page.getByLabel("Start of the range");
    const end = page.getByLabel("End of the range");
    await end.waitFor();
    expect(await page.getByLabel("End", { exact: true }).inputValue()).toBe("0:10");
    await end.focus();
    await page.keyboard.press("ArrowRight");
    expect(await page.getByLabel("End", { exact: true }).inputValue()).toBe("0:10.1");
    expect(await end.getAttribute("aria-valuetext")).toBe("0:10.1");
    // A handle stops before the other one.
    await start.focus();
    await page.keyboard.press("End");
    expect(await page.getByLabel("Start", { exact: true }).inputValue()).toBe("0:10");
    await expect.poll(() => video(opened, "video.currentTime")).toBeCloseTo(10, 1);
    await page.getByLabel("Start", { exact: true }).fill("0:04.5");
    expect(await start.inputValue()).toBe("4.5");

    // By pointer: to the middle of the track.
    const track = (await start.boundingBox())!;
    const handle = { x: track.x + 9 + (4.5 / SAMPLE.duration) * (track.width - 18), y: track.y + track.height / 2 };
    await page.mouse.move(handle.x, handle.y);
    await page.mouse.down();
    await page.mouse.move(track.x + track.width / 4, handle.y, { steps: 4 });
    await page.mouse.up();
    expect(Number(await start.inputValue())).toBeCloseTo(SAMPLE.duration / 4, 0);

    await page.getByLabel("Start", { exact: true }).fill("9.7");
    await page.getByRole("button", { name: "Play the range" }).click();
    await expect.poll(() => video(opened, "video.paused && video.currentTime >= 10.1")).toBe(true);
    await page.getByRole("button", { name: "End here" }).click();
    expect(await page.getByLabel("End", { exact: true }).inputValue()).toMatch(/^0:10\.\d/);
    await expectGoodPage(opened, "range");

    // A gif has no text track.
    await page.getByRole("button", { name: "Text track" }).click();
    await page.getByRole("button", { name: "GIF" }).click();
    expect(await page.getByRole("button", { name: "Text track" }).count()).toBe(0);
    expect(await page.getByRole("button", { name: "In the picture" }).getAttribute("aria-pressed")).toBe("true");
    await page.getByLabel("Title", { exact: true }).fill("The harbour");
    await page.getByRole("button", { name: "Make the clip" }).click();
    await page.getByRole("heading", { level: 1, name: "The harbour" }).waitFor();
    expect((await setup.api.get(`/clips/${idOf(opened)}`)).body).toMatchObject({
      ...{ state: "queued", start: 9.7, captions: "burned", format: "gif", cut: "exact" },
      source: { kind: "upload", name: "harbour.mp4" },
    });
    await page.getByText("Waiting for a worker").first().waitFor();
    await expectGoodPage(opened, "queued");
    await setup.api.post(`/clips/${idOf(opened)}/cancel`, {});
    await page.getByText("cancelled", { exact: true }).waitFor();
  });

  it("shows how much of a dropped file is uploaded, and stops when it is removed", async () => {
    const opened = await visit("", "phone", "light");
    const { page, context } = opened;
    await page.setViewportSize({ width: 360, height: 780 });
    const network = await context.newCDPSession(page);
    const limit = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 40_000 };
    await network.send("Network.emulateNetworkConditions", limit);
    const bytes = fs.readFileSync(SAMPLE_FILE).toString("base64");
    const transfer = await page.evaluateHandle(
      `(() => { const transfer = new DataTransfer();
        transfer.items.add(new File([Uint8Array.from(atob("${bytes}"), (one) => one.charCodeAt(0))], "drop <b>.mp4", { type: "video/mp4" }));
        return transfer; })()`,
    );
    const form = page.locator("form.new-clip");
    await form.dispatchEvent("dragover", { dataTransfer: transfer });
    await form.dispatchEvent("drop", { dataTransfer: transfer });
    await page.getByText("drop <b>.mp4").waitFor();
    const meter = page.getByRole("progressbar", { name: "Uploaded" });
    await expect.poll(async () => Number(await meter.getAttribute("value"))).toBeGreaterThan(0);
    // The range can be chosen before the upload has ended.
    await page.getByLabel("End of the range").waitFor();
    expect(await page.getByRole("button", { name: "Uploading…" }).isDisabled()).toBe(true);
    await takeScreenshot(opened, "uploading-phone");
    await page.getByRole("button", { name: "Remove the file" }).click();
    await page.getByLabel("URL of a video").waitFor();
    expect((await pool.query("select from clip.uploads where name like 'drop%'")).rowCount).toBe(0);

    await page.getByLabel("Choose a file").setInputFiles({
      ...{ name: "large.mp4", mimeType: "video/mp4" },
      buffer: Buffer.alloc(1_200_000),
    });
    await page.getByRole("alert").getByText("The file has 1.2 MB, and the server accepts 1 MB").waitFor();
    await page.getByText("or use the URL of the video").waitFor();
    expect(await page.getByLabel("Start", { exact: true }).count()).toBe(0);
    await expectGoodPage(opened, "too-large-phone");
  });

  it("offers to upload a file again when the store was not available", async () => {
    const opened = await visit("");
    const { page } = opened;
    opened.allow(/503/);
    const folder = path.join(setup.folder, "sources");
    fs.renameSync(folder, `${folder}-away`);
    fs.writeFileSync(folder, "");
    await page.getByLabel("Choose a file").setInputFiles(SAMPLE_FILE);
    await page.getByRole("alert").getByText("The store of files is not available").waitFor();
    expect(await page.getByRole("button", { name: "Make the clip" }).isDisabled()).toBe(true);
    await expectGoodPage(opened, "store-down");
    fs.rmSync(folder);
    fs.renameSync(`${folder}-away`, folder);
    await page.getByRole("button", { name: "Upload again" }).click();
    await page.getByText(/kB, uploaded$/).waitFor();
    expect(await page.getByRole("button", { name: "Make the clip" }).isEnabled()).toBe(true);
  });

  it("takes typed times for a URL that the browser cannot play, and shows errors at their fields", async () => {
    const opened = await visit("");
    opened.allow(/400/);
    const { page } = opened;
    await page.getByLabel("URL of a video").fill("ftp://media.example.com/talk.mp4");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("This must be an http or https URL").waitFor();
    await page.getByLabel("URL of a video").fill(`${origin}/clip/mark.svg`);
    await page.getByText("This browser cannot play the video.").waitFor();
    expect(await page.getByLabel("Start of the range").count()).toBe(0);
    const submit = page.getByRole("button", { name: "Make the clip" });
    for (const [start, end, message] of [
      ["now", "0:10", "Write minutes and seconds, such as 1:05.5"],
      ["0:10", "0:10", "This must be after the start"],
      ["0:00", "20:00", "This must be at most 600 seconds after start. Choose a shorter range"],
    ] as const) {
      await page.getByLabel("Start", { exact: true }).fill(start);
      await page.getByLabel("End", { exact: true }).fill(end);
      await submit.click();
      await page.getByRole("alert").getByText(message).waitFor();
    }
    await expectGoodPage(opened, "typed");
    await page.getByLabel("End", { exact: true }).fill("0:12");
    await submit.click();
    await page.getByRole("heading", { level: 1, name: "mark.svg" }).waitFor();
    const first = idOf(opened);
    await page.getByText("0:00 to 0:12 of mark.svg").waitFor();

    // The same request again.
    await page.getByRole("link", { name: "Clips" }).click();
    await page.getByLabel("URL of a video").fill(`${origin}/clip/mark.svg`);
    await page.getByLabel("End", { exact: true }).fill("12");
    await submit.click();
    await page.getByText("This clip exists already.").waitFor();
    expect(idOf(opened)).toBe(first);
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByText("cancelled", { exact: true }).waitFor();
  });

  it("plays a URL, and starts with the sample when it is asked to", async () => {
    const opened = await visit("");
    const { page } = opened;
    await page.getByLabel("URL of a video").fill(`${origin}/clip/api/uploads/${SAMPLE.upload}/file`);
    await page.getByLabel("End of the range").waitFor();
    await page.getByRole("button", { name: "Choose the range yourself" }).click();
    await page.getByText("Stored on the server").waitFor();
    expect(await page.getByLabel("Start", { exact: true }).inputValue()).toBe("0:04");
    await page.getByLabel("End of the range").waitFor();
    opened.expectNoComplaints();
  });

  it("shows stages, frames per second, time left and the log while the clip is made", async () => {
    const { id } = await request({ title: "A <b>talk</b>", captions: "sidecar" });
    const go = deferred();
    await runJobs(async (job) => {
      await beginStage(job, "resolve");
      await job.step("resolve", { start: "Fetching the video...", end: "Video ready - 600 s" }, async () => {});
      await beginStage(job, "clip");
      return job.step("clip", { start: "Cutting the clip..." }, async (step) => {
        step.progress(0.42, "Cutting: 31 frames per second, 4 s left");
        await go.promise;
        return complete(job);
      });
    });
    const opened = await visit(`clips/${id}`);
    const { page } = opened;
    await page.getByText("Running: Cutting: 31 frames per second, 4 s left").waitFor();
    await line(opened, "Video ready - 600 s").waitFor();
    expect(await page.getByRole("progressbar").getAttribute("aria-valuenow")).toBe("42");
    const stages = page.locator(".stages li");
    expect(await stages.allTextContents()).toEqual([
      "Get the video, done",
      "Cut, running",
      "Store, not started",
      "Recognize speech, not started",
      "Finish, not started",
    ]);
    await expectGoodPage(opened, "running");
    const list = await visit("", "phone", "light");
    const card = list.page.getByRole("listitem").filter({ hasText: "A <b>talk</b>" });
    await card.getByText("cutting", { exact: true }).waitFor();
    expect(await card.getByRole("progressbar").getAttribute("value")).toBe("0.42");
    await list.page.setViewportSize({ width: 360, height: 780 });
    await expectGoodPage(list, "list-phone");
    go.resolve();
    await page.getByRole("link", { name: "Download" }).waitFor();
    await page.getByText("ready", { exact: true }).waitFor();
    // Speech recognition gave no captions.
    expect((await stages.allTextContents()).slice(2)).toEqual([
      "Store, done",
      "Recognize speech, without a result",
      "Finish, done",
    ]);
    expect(await page.title()).toBe("A <b>talk</b> ready");
    await card.getByText("ready", { exact: true }).waitFor();
    opened.expectNoComplaints();
  });

  it("plays the result with its captions on, and says what it lacks", async () => {
    const { id } = await request({ title: "Captioned", captions: "sidecar" });
    await runJobs((job) => complete(job, "sidecar", ["The video ends at 24 s: the clip is shorter than requested"]));
    const opened = await visit(`clips/${id}`);
    const { page } = opened;
    await page.getByLabel("Captioned").waitFor();
    const track = "video.textTracks[0]";
    await expect.poll(() => video(opened, `[${track}?.mode, ${track}?.cues?.length]`)).toEqual(["showing", 2]);
    await video(opened, "(video.currentTime = 3)");
    await expect.poll(() => video(opened, `${track}.activeCues[0]?.text`)).toBe("The <b>second</b> line");
    await page.getByText("The video ends at 24 s: the clip is shorter than requested").waitFor();
    await expectGoodPage(opened, "ready");
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "Download" }).click(),
    ]);
    expect(download.suggestedFilename()).toBe("Captioned.mp4");
    expect(fs.readFileSync((await download.path())!).equals(fs.readFileSync(SAMPLE_FILE))).toBe(true);
    const phone = await visit(`clips/${id}`, "phone", "light");
    await phone.page.setViewportSize({ width: 360, height: 780 });
    await phone.page.getByLabel("Captioned").waitFor();
    await expectGoodPage(phone, "ready-phone");
  });

  it("shows a clip with captions in the picture when they are in it", async () => {
    const { id } = await request({ title: "Burned", captions: "burned" });
    const go = deferred();
    await runJobs(async (job) => {
      await job.step("clip", () => job.artifact("clip.mp4", () => "a cut without captions"));
      await beginStage(job, "finalize");
      await go.promise;
      await job.artifact("captioned.mp4", () => fs.readFileSync(SAMPLE_FILE));
      return complete(job, "burned");
    });
    const opened = await visit(`clips/${id}`);
    const { page } = opened;
    await page.locator(".stages").getByText("Finish, running").waitFor();
    expect((await setup.api.get(`/clips/${id}`)).body.files.file).toBe(true);
    expect(await page.locator("video").count()).toBe(0);
    go.resolve();
    await page.getByLabel("Burned").waitFor();
    await expect.poll(() => video(opened, "video.duration")).toBeCloseTo(SAMPLE.duration, 0);
    expect(await video(opened, "video.textTracks.length")).toBe(0);
    await page.getByRole("link", { name: "Captions as SRT" }).waitFor();
    opened.expectNoComplaints();
  });

  it("shows why a clip failed and what to do, and makes it again after a change or a retry", async () => {
    const sentence = "The range begins at 700 s but the video ends at 600 s - choose an earlier range";
    const { id } = await request({ title: "Too late", start: 700, end: 710, cut: "keyframe" });
    let isBroken = true;
    await runJobs(async (job) => {
      await beginStage(job, "resolve");
      if (isBroken) throw new Fatal(sentence, { code: "RANGE_PAST_END" });
      return complete(job);
    });
    const opened = await visit(`clips/${id}`);
    const { page } = opened;
    const alert = page.getByRole("alert");
    await alert.getByText("Failed while getting the video").waitFor();
    await alert.getByText(sentence).waitFor();
    await alert.getByText("Another try fails in the same way unless the cause is removed.").waitFor();
    await expectGoodPage(opened, "failed");
    await page.getByRole("link", { name: "Change and clip again" }).click();
    await page.getByRole("heading", { level: 1, name: "Clips" }).waitFor();
    expect(await page.getByLabel("Start", { exact: true }).inputValue()).toBe("11:40");
    expect(await page.getByLabel("URL of a video").inputValue()).toBe(VIDEO.url);
    expect(await page.getByLabel("Title", { exact: true }).inputValue()).toBe("Too late");
    expect(await page.getByLabel("Cut without encoding").isChecked()).toBe(true);
    await page.getByRole("listitem").filter({ hasText: "Too late" }).getByText(sentence).waitFor();
    // The video is not fetched in tests.
    opened.allow(/media\.example\.com/);
    await page.goBack();
    isBroken = false;
    await page.getByRole("button", { name: "Retry" }).click();
    await page.getByRole("link", { name: "Download" }).waitFor();
    await line(opened, "Completed").waitFor();
    expect(await alert.count()).toBe(0);
    opened.expectNoComplaints();
  });

  it("clips the sample with one click, and filters the clips", async () => {
    const opened = await visit("");
    const { page } = opened;
    await page.getByRole("button", { name: "Clip the sample" }).click();
    await page.getByRole("heading", { level: 1, name: SAMPLE.name }).waitFor();
    await page.getByText(`0:04 to 0:14 of harbour.mp4`).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Retry" }).waitFor();
    await page.getByRole("link", { name: "Clips" }).click();
    const cards = page.locator(".clip-card");
    await page.getByRole("button", { name: "Ready" }).click();
    await expect.poll(() => cards.locator(".state").allInnerTexts()).toEqual(["ready", "ready", "ready", "ready"]);
    await page.getByLabel("Search by title").fill("captio");
    await expect.poll(() => cards.count()).toBe(1);
    await page.getByRole("button", { name: "Failed" }).click();
    await page.getByText("No clips match the filters").waitFor();
    await page.getByLabel("Search by title").fill("");
    await page.getByRole("button", { name: "All" }).click();
    await expect.poll(() => cards.count()).toBeGreaterThan(4);
    await expectGoodPage(opened, "list");
  });

  it("sends no requests for a clip that has ended, and reports a missing one", async () => {
    const { rows } = await pool.query("select id from clip.clips where title = 'Captioned'");
    const opened = await browser.visit({ origin });
    const { page } = opened;
    await page.clock.install();
    await opened.goto(`/clip/clips/${rows[0].id}`);
    await line(opened, "Completed").waitFor();
    await waitUntilLoaded(opened);
    const sent: string[] = [];
    page.on("request", (one) => sent.push(one.url()));
    await page.clock.runFor("10:00");
    await waitUntilLoaded(opened);
    expect(sent).toEqual([]);
    opened.allow(/404/);
    await opened.goto("/clip/clips/01a1e107-2508-4182-ae66-db7bbe9aa49e");
    await page.getByRole("heading", { name: "Clip not found" }).waitFor();
    await page.getByRole("link", { name: "See all clips" }).click();
    await page.getByRole("heading", { level: 1, name: "Clips" }).waitFor();
    opened.expectNoComplaints();
  });
});
