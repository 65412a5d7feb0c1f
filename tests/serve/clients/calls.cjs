// The calls of one client of Node.js, run one after the other: what calls.py is in Python.
"use strict";

const declared = [];
const declare = (name, call, function_) => declared.push([name, function_]);

// A call that works: its name, how it is written, and a function of the server's URL that throws if it does not.
const works = (name, call, function_) => declare(name, call, function_);
// A call that is refused; the function checks how.
const refused = (name, call, how, function_) => declare(name, call, function_);

const QUESTION = "What do you say to a friend";
const ANSWER = "Hello there, friend."; // of the scripted decoder
const WEATHER = "I want to know the weather"; // it calls get_weather, and answers as above when it has the result
const PERSON = "Who is this person"; // its answer is JSON

async function main() {
  for (const [name, function_] of declared) {
    let error = "";
    try {
      await function_(process.argv[2]);
    } catch (caught) {
      error = String(caught.stack ?? caught);
    }
    console.log(JSON.stringify({ name, error }));
  }
}

module.exports = { works, refused, main, QUESTION, ANSWER, WEATHER, PERSON };
