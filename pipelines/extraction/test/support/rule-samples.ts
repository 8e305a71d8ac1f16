// For each built-in rule, code that it must report and code that it must not report.
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: source code of samples.
interface RuleSample {
  rule: string;
  extension: string;
  bad: string[];
  good: string[];
}

export const RULE_SAMPLES: RuleSample[] = [
  {
    rule: "js-eval",
    extension: "ts",
    bad: ["eval(input as string);", "const f = new Function('a', body);", "eval(`run_${name}()`);"],
    good: ["eval('1 + 1');", "const f = new Function('a', 'return a');", "evaluate(input);"],
  },
  {
    rule: "js-shell-command",
    extension: "js",
    bad: [
      "exec('ls ' + dir, done);",
      "child_process.execSync(`rm -r ${dir}`);",
      "execSync(`git log ${branch}`, { encoding: 'utf8' });",
      "spawn(`tar xf ${file}`, [], { shell: true });",
    ],
    good: [
      "exec('ls -l', done);",
      "execFile('ls', [dir]);",
      "pattern.exec('a' + b);",
      "exec('a' + 'b');",
      "spawn('tar', ['xf', file]);",
    ],
  },
  {
    rule: "js-sql-injection",
    extension: "ts",
    bad: [
      "await db.query(`select * from users where id = ${id}`);",
      "await db.query('SELECT * FROM users WHERE id = ' + id);",
      "await knex.raw(`delete from t where n = '${name}'`);",
    ],
    good: [
      "await db.query('select * from users where id = $1', [id]);",
      "await db.query(`select 1`);",
      "await db.query(`select id from ${schema}.jobs where id = $1`, [id]);",
      "await db.query(sql);",
      "router.query(`page=${n}`);",
      "db.query('select a ' + 'from b');",
    ],
  },
  {
    rule: "js-markup-injection",
    extension: "jsx",
    bad: [
      "element.innerHTML = name;",
      "document.write(location.hash);",
      "const a = <p dangerouslySetInnerHTML={{ __html: text }} />;",
      "element.insertAdjacentHTML('beforeend', row);",
    ],
    good: [
      "element.innerHTML = '';",
      "element.textContent = name;",
      "const a = <p>{text}</p>;",
      "document.write('<p>');",
    ],
  },
  {
    rule: "js-tls-unchecked",
    extension: "mjs",
    bad: [
      "const agent = new https.Agent({ rejectUnauthorized: false });",
      "process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';",
    ],
    good: [
      "const agent = new https.Agent({ rejectUnauthorized: true });",
      "process.env.NODE_TLS_REJECT_UNAUTHORIZED = '1';",
    ],
  },
  {
    rule: "js-weak-hash",
    extension: "cjs",
    bad: ["crypto.createHash('md5').update(a);", 'createHmac("sha1", key);'],
    good: ["crypto.createHash('sha256');", "createHash(name);"],
  },
  {
    rule: "js-weak-cipher",
    extension: "js",
    bad: ["crypto.createCipheriv('aes-128-ecb', key, null);", "createDecipheriv('des-cbc', key, iv);"],
    good: ["crypto.createCipheriv('aes-256-gcm', key, iv);"],
  },
  {
    rule: "js-guessable-secret",
    extension: "ts",
    bad: ["const token = Math.random().toString(36);", "user.resetPassword = String(Math.random());"],
    good: ["const delay = Math.random() * 100;", "const token = crypto.randomUUID();"],
  },
  {
    rule: "py-eval",
    extension: "py",
    bad: ["eval(x)\n", "exec(code, scope)\n", "eval(f'run_{name}()')\n"],
    good: ["eval('1 + 1')\n", "ast.literal_eval(x)\n"],
  },
  {
    rule: "py-shell-command",
    extension: "py",
    bad: [
      "subprocess.run(cmd, shell=True)\n",
      "subprocess.check_output(f'ls {d}', timeout=3, shell=True)\n",
      "os.system('rm ' + f)\n",
    ],
    good: ["subprocess.run(['ls', d])\n", "subprocess.run('ls -l', shell=True)\n", "os.system('clear')\n"],
  },
  {
    rule: "py-unsafe-yaml",
    extension: "py",
    bad: ["yaml.load(text)\n", "yaml.load(text, Loader=yaml.Loader)\n"],
    good: [
      "yaml.safe_load(text)\n",
      "yaml.load(text, Loader=yaml.SafeLoader)\n",
      "yaml.load(text, Loader=CSafeLoader)\n",
    ],
  },
  {
    rule: "py-unsafe-pickle",
    extension: "py",
    bad: ["pickle.loads(body)\n", "with open(f, 'rb') as h:\n    data = pickle.load(h)\n"],
    good: ["pickle.dumps(data)\n", "json.loads(body)\n"],
  },
  {
    rule: "py-sql-injection",
    extension: "py",
    bad: [
      'cursor.execute(f"select * from t where id = {i}")\n',
      "cursor.execute('SELECT * FROM t WHERE id = ' + i)\n",
      "cursor.execute('select * from t where n = %s' % name)\n",
      "cursor.execute(\"delete from t where n = '{}'\".format(name))\n",
    ],
    good: [
      "cursor.execute('select * from t where id = %s', (i,))\n",
      "cursor.execute(f'select * from {table} where id = %s', (i,))\n",
      "cursor.execute(statement)\n",
      "pool.execute(f'job {i}')\n",
    ],
  },
  {
    rule: "py-tls-unchecked",
    extension: "py",
    bad: ["requests.get(url, verify=False)\n", "ctx = ssl._create_unverified_context()\n"],
    good: ["requests.get(url)\n", "requests.get(url, verify=bundle)\n", "jwt.decode(t, verify=False)\n"],
  },
  {
    rule: "py-weak-hash",
    extension: "py",
    bad: ["hashlib.md5(data).hexdigest()\n", "hashlib.new('sha1', data)\n"],
    good: ["hashlib.sha256(data)\n", "hashlib.md5(data, usedforsecurity=False)\n", "hashlib.new('sha512')\n"],
  },
  {
    rule: "py-debug-server",
    extension: "py",
    bad: ["app.run(host='0.0.0.0', debug=True)\n"],
    good: ["app.run()\n", "app.run(debug=settings.DEBUG)\n", "loop.run(debug=True)\n"],
  },
  {
    rule: "go-shell-command",
    extension: "go",
    bad: [
      'package a\nfunc f(d string) { exec.Command("sh", "-c", "ls "+d).Run() }\n',
      'package a\nfunc f() { exec.CommandContext(ctx, "/bin/bash", "-c", script) }\n',
    ],
    good: [
      'package a\nfunc f(d string) { exec.Command("ls", "-l", d).Run() }\n',
      'package a\nfunc f() { exec.Command("sh", "-c", "ls -l") }\n',
    ],
  },
  {
    rule: "go-sql-injection",
    extension: "go",
    bad: [
      'package a\nfunc f() { db.Query(fmt.Sprintf("select * from t where id = %s", id)) }\n',
      'package a\nfunc f() { rows, err := db.QueryContext(ctx, "SELECT * FROM t WHERE id = " + id) }\n',
    ],
    good: [
      'package a\nfunc f() { db.Query("select * from t where id = $1", id) }\n',
      'package a\nfunc f() { db.Exec("select a " + "from b") }\n',
    ],
  },
  {
    rule: "go-tls-unchecked",
    extension: "go",
    bad: [
      "package a\nvar c = &tls.Config{InsecureSkipVerify: true}\n",
      "package a\nfunc f() { c.InsecureSkipVerify = true }\n",
    ],
    good: [
      "package a\nvar c = &tls.Config{InsecureSkipVerify: false}\n",
      "package a\nvar c = &tls.Config{MinVersion: tls.VersionTLS12}\n",
    ],
  },
  {
    rule: "go-weak-hash",
    extension: "go",
    bad: ["package a\nfunc f() { h := md5.New() }\n", "package a\nfunc f() { s := sha1.Sum(data) }\n"],
    good: ["package a\nfunc f() { h := sha256.New() }\n"],
  },
];
