// The files for a Kubernetes cluster. The orchestrator is one small pod that may only create Jobs in its namespace; workers are those Jobs,
// without any rights in the cluster. scaledjob.yaml is the alternative with KEDA, without an orchestrator.
import { imageFiles } from "./image.ts";
import { type DeployedPool, type Deployment, type Files, workerCommand } from "./settings.ts";
import { memoryQuantity } from "./sizes.ts";

export function kubernetesFiles(deployment: Deployment): Files {
  return {
    ...imageFiles(deployment),
    "namespace.yaml": namespace(deployment),
    "secret.example.yaml": secret(deployment),
    "rbac.yaml": rbac(deployment),
    "orchestrator.yaml": orchestrator(deployment),
    "watchdog.yaml": watchdog(deployment),
    "scaledjob.yaml": scaledJobs(deployment),
  };
}

export function kubernetesPools({ namespace, image, pools }: Deployment): string[] {
  return pools.map(
    (pool) =>
      `${JSON.stringify(pool.name)}: { provider: kubernetes({ namespace: "${namespace}", image: process.env.STILLWAKE_IMAGE ?? "${image}", cpu: ${pool.size}, memoryMb: ${pool.memoryMb}, secretRef: "stillwake-worker", serviceAccount: "stillwake-worker" }), slots: ${pool.slots}, max: ${pool.max} },`,
  );
}

const labels = (part: string) => `app.kubernetes.io/name: stillwake
    app.kubernetes.io/component: ${part}`;

const containerSecurity = (indent: string) =>
  ["securityContext:", "  allowPrivilegeEscalation: false", "  capabilities:", "    drop: [ALL]"].join(`\n${indent}`);

/** For a process that mostly waits. */
const smallContainer = (indent: string) =>
  [
    "resources:",
    "  requests:",
    "    cpu: 20m",
    "    memory: 128Mi",
    "  limits:",
    "    memory: 512Mi",
    containerSecurity(indent),
  ].join(`\n${indent}`);

const podSecurity = (indent: string) =>
  [
    "securityContext:",
    "  runAsNonRoot: true",
    "  runAsUser: 1000",
    "  runAsGroup: 1000",
    "  seccompProfile:",
    "    type: RuntimeDefault",
  ].join(`\n${indent}`);

function namespace({ namespace: name }: Deployment): string {
  return `# One namespace for the orchestrator and its machines. Its rights are limited to it.
apiVersion: v1
kind: Namespace
metadata:
  name: "${name}"
  labels:
    app.kubernetes.io/name: stillwake
`;
}

function secret({ namespace: name }: Deployment): string {
  return `# An example without values. Create the real secrets without a file and without arguments, which every user of the host can read:
#   printf 'STILLWAKE_DATABASE_URL=%s\\nSTILLWAKE_TOKEN=%s\\n' "$DATABASE_URL" "$(openssl rand -hex 24)" |
#     kubectl --namespace ${name} create secret generic stillwake-orchestrator --from-env-file=/dev/stdin
#   printf 'STILLWAKE_DATABASE_URL=%s\\n' "$WORKER_DATABASE_URL" |
#     kubectl --namespace ${name} create secret generic stillwake-worker --from-env-file=/dev/stdin
# or with your secret manager. There are two, so that workers get only what they need.
apiVersion: v1
kind: Secret
metadata:
  name: stillwake-orchestrator
  namespace: "${name}"
type: Opaque
stringData:
  # A login with stillwake_app.
  STILLWAKE_DATABASE_URL: ""
  # Sent by clients with each poke.
  STILLWAKE_TOKEN: ""
---
apiVersion: v1
kind: Secret
metadata:
  name: stillwake-worker
  namespace: "${name}"
type: Opaque
stringData:
  # A login with stillwake_worker.
  STILLWAKE_DATABASE_URL: ""
`;
}

function rbac({ namespace: name }: Deployment): string {
  return `# All rights of the orchestrator, in this namespace only: create, read and delete Jobs, and read their pods for exit codes. It
# reads no secret and changes no pod. A Job can reference any secret of its namespace: keep nothing else here.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: stillwake-orchestrator
  namespace: "${name}"
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: stillwake-orchestrator
  namespace: "${name}"
rules:
  - apiGroups: [batch]
    resources: [jobs]
    verbs: [create, get, list, delete]
  - apiGroups: [""]
    resources: [pods]
    verbs: [get, list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: stillwake-orchestrator
  namespace: "${name}"
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: stillwake-orchestrator
subjects:
  - kind: ServiceAccount
    name: stillwake-orchestrator
    namespace: "${name}"
---
# Workers have an account without rights, and its token is not mounted.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: stillwake-worker
  namespace: "${name}"
automountServiceAccountToken: false
`;
}

function orchestrator({ namespace: name, image }: Deployment): string {
  return `# One small pod that always runs and is idle without work. Clients poke it after an enqueue:
#   createStillwake({ url, poke: { url: "http://stillwake-orchestrator.${name}.svc:8080/v1/poke", token: <its STILLWAKE_TOKEN> } })
# A second replica is harmless and has no benefit.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: stillwake-orchestrator
  namespace: "${name}"
  labels:
    ${labels("orchestrator")}
spec:
  replicas: 1
  strategy:
    type: Recreate
  selector:
    matchLabels:
      app.kubernetes.io/name: stillwake
      app.kubernetes.io/component: orchestrator
  template:
    metadata:
      labels:
        app.kubernetes.io/name: stillwake
        app.kubernetes.io/component: orchestrator
    spec:
      serviceAccountName: stillwake-orchestrator
      terminationGracePeriodSeconds: 30
      ${podSecurity("      ")}
      containers:
        - name: orchestrator
          image: ${image}
          args: [stillwake, orchestrator, --host, 0.0.0.0, --port, "8080"]
          env:
            # The image of the workers. Change both together, so that machines of an older image are replaced.
            - name: STILLWAKE_IMAGE
              value: ${image}
          envFrom:
            - secretRef:
                name: stillwake-orchestrator
          ports:
            - name: http
              containerPort: 8080
          readinessProbe:
            httpGet:
              path: /health
              port: http
            periodSeconds: 10
          livenessProbe:
            httpGet:
              path: /health
              port: http
            initialDelaySeconds: 10
            periodSeconds: 30
            failureThreshold: 5
          ${smallContainer("          ")}
---
apiVersion: v1
kind: Service
metadata:
  name: stillwake-orchestrator
  namespace: "${name}"
spec:
  selector:
    app.kubernetes.io/name: stillwake
    app.kubernetes.io/component: orchestrator
  ports:
    - name: http
      port: 8080
      targetPort: http
`;
}

function watchdog({ namespace: name, image }: Deployment): string {
  return `# Covers lost pokes, and jobs that become due while nothing runs. Every five minutes is enough for most; pg_cron can run the watchdog instead.
# The orchestrator wakes when something is due, so only work that was enqueued without a poke waits for this.
apiVersion: batch/v1
kind: CronJob
metadata:
  name: stillwake-watchdog
  namespace: "${name}"
  labels:
    ${labels("watchdog")}
spec:
  schedule: "*/5 * * * *"
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 0
      activeDeadlineSeconds: 300
      ttlSecondsAfterFinished: 600
      template:
        spec:
          serviceAccountName: stillwake-orchestrator
          restartPolicy: Never
          ${podSecurity("          ")}
          containers:
            - name: watchdog
              image: ${image}
              args: [sh, -c, "stillwake watchdog && stillwake orchestrator --once"]
              env:
                - name: STILLWAKE_IMAGE
                  value: ${image}
              envFrom:
                - secretRef:
                    name: stillwake-orchestrator
              ${smallContainer("              ")}
`;
}

function scaledJobs(deployment: Deployment): string {
  const { namespace: name } = deployment;
  const machines = deployment.pools.map(
    ({ name: pool, slots, max }) =>
      `#   select stillwake.set_machines('${pool}', '{"provider": "keda", "slots": ${slots}, "max": ${max}}');`,
  );
  return `# For clusters with KEDA, instead of the orchestrator: KEDA queries the database every 30 s for the number of workers of each
# pool, which keeps the database awake. Do not apply it together with orchestrator.yaml. docs/run/keda.md lists its limits and
# the login it needs:
#   printf 'url=%s\\n' "$KEDA_DATABASE_URL" | kubectl --namespace ${name} create secret generic stillwake-keda --from-env-file=/dev/stdin
# Register the machines once, as the owner or as stillwake_app:
${machines.join("\n")}
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  name: stillwake-keda
  namespace: "${name}"
spec:
  secretTargetRef:
    - parameter: connection
      name: stillwake-keda
      key: url
${deployment.pools.map((pool) => scaledJob(deployment, pool)).join("")}`;
}

function scaledJob(deployment: Deployment, pool: DeployedPool): string {
  const { namespace: name, image } = deployment;
  return `---
apiVersion: keda.sh/v1alpha1
kind: ScaledJob
metadata:
  name: stillwake-${pool.slug}
  namespace: "${name}"
spec:
  pollingInterval: 30
  maxReplicaCount: ${pool.max}
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 5
  # A new image stops no running worker.
  rollout:
    strategy: gradual
  # The wanted number includes running workers.
  scalingStrategy:
    strategy: default
  triggers:
    - type: postgresql
      metadata:
        query: >-
          select coalesce(max(wanted), 0) from stillwake.wanted_workers where pool = '${pool.name}'
        targetQueryValue: "1"
      authenticationRef:
        name: stillwake-keda
  jobTargetRef:
    backoffLimit: 0
    activeDeadlineSeconds: 86400
    ttlSecondsAfterFinished: 300
    podReplacementPolicy: Failed
    podFailurePolicy:
      rules:
        - action: Ignore
          onPodConditions:
            - type: DisruptionTarget
              status: "True"
    template:
      spec:
        serviceAccountName: stillwake-worker
        automountServiceAccountToken: false
        restartPolicy: Never
        terminationGracePeriodSeconds: ${Number.parseInt(pool.grace, 10)}
        ${podSecurity("        ")}
        containers:
          - name: worker
            image: ${image}
            args: ${JSON.stringify(workerCommand(deployment)).replaceAll(",", ", ")}
            env:
              - name: STILLWAKE_POOL
                value: ${JSON.stringify(pool.name)}
              - name: STILLWAKE_SLOTS
                value: "${pool.slots}"
              - name: STILLWAKE_IDLE_EXIT
                value: 60s
              - name: STILLWAKE_GRACE
                value: ${pool.grace}
            envFrom:
              - secretRef:
                  name: stillwake-worker
            resources:
              requests:
                cpu: ${JSON.stringify(pool.size)}
                memory: ${memoryQuantity(pool.memoryMb)}
              limits:
                memory: ${memoryQuantity(pool.memoryMb)}
            ${containerSecurity("            ")}
`;
}
