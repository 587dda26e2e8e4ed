import { readFileSync, writeFileSync } from "node:fs";
import { dirname, relative, sep } from "node:path";
import { argv } from "node:process";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = fileURLToPath(new URL("../", import.meta.url));

/** The package's doors, each with the source that its types come from. */
export function doors() {
  const { name, exports } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  return Object.entries(exports)
    .filter(([, door]) => typeof door === "object" && "types" in door)
    .map(([path, { types }]) => ({
      name: path === "." ? name : `${name}${path.slice(1)}`,
      source: `${root}${types.replace("./dist/", "src/").replace(/\.d\.ts$/, ".ts")}`,
    }));
}

/** docs/api.md for these doors: what each exports, with its signature and its comment. */
export function apiPage(entries) {
  const config = ts.readConfigFile(`${root}tsconfig.json`, (path) => ts.sys.readFile(path)).config;
  const { options } = ts.convertCompilerOptionsFromJson(
    { ...config.compilerOptions, noEmit: false, declaration: true, stripInternal: true },
    root,
  );
  const program = ts.createProgram(
    entries.map(({ source }) => source),
    options,
  );
  const checker = program.getTypeChecker();
  const folder = dirname(entries[0].source) + sep;
  const isOurs = (declaration) => declaration.getSourceFile().fileName.startsWith(folder.replaceAll(sep, "/"));
  const declared = declarations(program);
  const original = (symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol);

  const exported = entries.map(({ name, source }) => ({
    name,
    symbols: checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(source))).map((symbol) => ({
      name: symbol.name,
      symbol: original(symbol),
    })),
  }));
  const named = new Set(exported.flatMap(({ symbols }) => symbols.map(({ symbol }) => symbol)));
  const mentioned = mentions(checker, [...named], (symbol) => !named.has(symbol) && symbol.declarations?.some(isOurs) === true);

  const entry = ({ name, symbol }) => {
    // Overloads are several declarations under one name, and each of them would yield all.
    const parts = [...new Set(symbol.declarations.flatMap((declaration) => declared(declaration)))].map((part) => ({
      ...part,
      text: withRows(checker, symbol, part.text),
    }));
    const comment = parts.map(({ comment }) => comment).find((text) => text !== "");
    return [
      `### ${name}`,
      "",
      ...(comment === undefined ? [] : [comment, ""]),
      ...(name === symbol.name ? [] : [`Exported under this name; the types here call it \`${symbol.name}\`.`, ""]),
      "```ts",
      parts.map(({ text }) => text).join("\n"),
      "```",
      "",
    ];
  };
  const isValue = ({ symbol }) => (symbol.flags & ts.SymbolFlags.Value) !== 0;
  const chapter = ({ name, symbols }) => [
    `## ${name}`,
    "",
    ...symbols.filter((symbol) => isValue(symbol)).flatMap(entry),
    ...symbols.filter((symbol) => !isValue(symbol)).flatMap(entry),
  ];
  return [
    "# API",
    "",
    "Everything that the package exports, by the path that it is imported from: functions and values first, then types.",
    "What is public, and how it may change, is in [stability](stability.md).",
    "",
    "This page is generated from the types in `src` by `npm run docs`.",
    "",
    ...exported.map(({ name }) => `- [${name}](#${name.replaceAll(/[^a-z0-9-]/g, "")})`),
    ...(mentioned.length === 0 ? [] : ["- [types that these mention](#mentioned-above)"]),
    "",
    ...exported.flatMap(chapter),
    ...(mentioned.length === 0
      ? []
      : ["## Mentioned above", "", "Types that the ones above use. They cannot be imported by name.", "", ...mentioned.flatMap(entry)]),
  ].join("\n");
}

/** Each declaration as the compiler writes it into a .d.ts: without bodies, and with inferred types in full. */
function declarations(program) {
  const files = new Map();
  const emitted = (source) => {
    const known = files.get(source);
    if (known !== undefined) return known;
    let text = "";
    program.emit(source, (_, content) => (text = content), undefined, true);
    const file = ts.createSourceFile("emitted.d.ts", text, ts.ScriptTarget.Latest, true);
    files.set(source, file);
    return file;
  };
  const texts = new Map();
  const writtenOnce = (file, statement) => {
    if (!texts.has(statement)) texts.set(statement, written(file, statement));
    return texts.get(statement);
  };
  return (declaration) => {
    const name = declaration.name?.text;
    const file = emitted(declaration.getSourceFile());
    return file.statements.filter((statement) => namesOf(statement).includes(name)).map((statement) => writtenOnce(file, statement));
  };
}

function namesOf(statement) {
  if (ts.isVariableStatement(statement)) return statement.declarationList.declarations.map(({ name }) => name.text);
  return statement.name === undefined ? [] : [statement.name.text];
}

function written(file, statement) {
  const docs = ts.getJSDocCommentsAndTags(statement).filter((doc) => ts.isJSDoc(doc) && doc.parent === statement);
  const text = statement
    .getText(file)
    .replace(/^(export )?(declare )?/, "")
    .replaceAll(/^ +/gm, (spaces) => " ".repeat(Math.floor(spaces.length / 4) * 2 + (spaces.length % 4)));
  return { text: isTable(statement) ? text.replace(/\{[\s\S]*\}/, "{ … }") : text, comment: docs.map((doc) => prose(doc)).join("\n") };
}

/** The interface with the members that it takes from tables of settings written out, as an editor shows them. */
function withRows(checker, symbol, text) {
  const own = new Set(symbol.members?.keys());
  const clauses = (symbol.declarations ?? []).filter(ts.isInterfaceDeclaration).flatMap(({ heritageClauses = [] }) => heritageClauses);
  const tables = clauses.flatMap(({ types }) => types).filter((node) => isOfRows(checker, node));
  if (tables.length === 0) return text;
  const rows = tables.flatMap((node) => checker.getPropertiesOfType(checker.getTypeAtLocation(node)).map((row) => [row, node]));
  const members = rows
    .filter(([row]) => !own.has(row.escapedName))
    .map(([row, node]) => {
      const [declaration] = row.declarations ?? [];
      const comments = declaration === undefined ? [] : ts.getJSDocCommentsAndTags(declaration).filter(ts.isJSDoc);
      const type = checker.typeToString(checker.getTypeOfSymbolAtLocation(row, node), node, shortly);
      return [...comments.map((comment) => `  ${comment.getText()}\n`), `  readonly ${row.name}?: ${type};\n`].join("");
    });
  return text.replace(/ extends (\w+<typeof \w+>(, )?)+ \{/, " {").replace(/\}$/, () => `${members.join("")}}`);
}

const shortly = ts.TypeFormatFlags.NoTruncation | ts.TypeFormatFlags.UseAliasDefinedOutsideCurrentScope;

/** Is this base the settings of a table, such as `OptionsOf<typeof relaySettings>`? */
function isOfRows(checker, node) {
  return node.typeArguments?.some(ts.isTypeQueryNode) === true && !checker.getTypeAtLocation(node).isClassOrInterface();
}

/** A constant object of many lines: its type says no more than its keys do. */
function isTable(statement) {
  if (!ts.isVariableStatement(statement)) return false;
  const [{ type }] = statement.declarationList.declarations;
  return type !== undefined && ts.isTypeLiteralNode(type) && type.members.length > 12;
}

function prose(doc) {
  const tags = (doc.tags ?? []).map((tag) => `${tag.tagName.text}: ${ts.getTextOfJSDocComment(tag.comment) ?? ""}`);
  return [ts.getTextOfJSDocComment(doc.comment) ?? "", ...tags].filter((text) => text !== "").join("\n");
}

/** The types that the declarations of these symbols refer to, directly or through other types, sorted by name. */
function mentions(checker, symbols, wanted) {
  const found = new Set();
  const visit = (node) => {
    // A body is no part of the type.
    if (ts.isBlock(node) || ts.isJSDoc(node) || (ts.isExpressionWithTypeArguments(node) && isOfRows(checker, node))) return;
    if (ts.isIdentifier(node)) {
      const symbol = checker.getSymbolAtLocation(node);
      const target = symbol && symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
      if (target !== undefined && target.flags & namedType && wanted(target) && !found.has(target)) {
        found.add(target);
        target.declarations.forEach(visit);
      }
    }
    ts.forEachChild(node, visit);
  };
  for (const { declarations = [] } of symbols) declarations.forEach(visit);
  return [...found].map((symbol) => ({ name: symbol.name, symbol })).sort((a, b) => (a.name < b.name ? -1 : 1));
}

const namedType = ts.SymbolFlags.Interface | ts.SymbolFlags.TypeAlias | ts.SymbolFlags.Class;

if (argv[1] === fileURLToPath(import.meta.url)) {
  const page = new URL("../docs/api.md", import.meta.url);
  writeFileSync(page, apiPage(doors()));
  console.log(relative(process.cwd(), fileURLToPath(page)));
}
