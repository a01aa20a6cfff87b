"""A library desk: learn the workflow of hand-made dialogues, look at it, chat along it, and see what it lacks."""

from importlib.resources import files

from dfa_rag import ChatAgent, CopyLLM, DFARouter, DialogueDFA, KeywordTagger, coverage, load_dialogues

dialogues = load_dialogues(str(files("dfa_rag") / "dialogues" / "library.jsonl"))
train, test = dialogues[:34], dialogues[34:]
dfa = DialogueDFA(min_support=2).fit(train)
print(dfa.summary())
print(dfa.to_mermaid()[:400], "…\n")

words = {
    "loan": ["book", "novel", "borrow", "lend"],
    "renew": ["renew", "extend", "prolong"],
    "yes": ["yes", "sure", "please do"],
    "no": ["no", "not"],
    "card": ["number", "it is"],
    "lost-card": ["lost", "stolen"],
}
acts = {tag: [turn.text] for d in dialogues for turn in d.turns if turn.role == "system" for tag in turn.tags}
agent = ChatAgent(DFARouter(dfa, train, examples=3), CopyLLM(), KeywordTagger({"user": words, "system": acts}))
for said in ("Hello, do you have the new novel by Ishiguro?", "yes please", "my number is 20418"):
    reply = agent.reply(said)
    print("user:  ", said)
    print("system:", reply.text, f"  [{dfa.name(reply.state)}, examples {[e.dialogue_id for e in reply.examples]}]")

report = coverage(dfa, test)
print(f"\n{report.share:.0%} of the held-out turns are followed; label first: {report.to_label(3)}")
for state, tag, times in report.missing()[:5]:
    print(f"  {times} x {tag!r} leads nowhere from {dfa.name(state)}")
